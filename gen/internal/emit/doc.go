// Package emit turns facts about C headers and the generator's tables into
// raw bindings: Go mirrors, enumerations and functions, and the C that stands
// between them and a library loaded at run time. Its output depends on nothing
// else, so the same facts give the same bytes.
package emit
