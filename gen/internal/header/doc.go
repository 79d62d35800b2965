// Package header reads C headers and extracts their facts: it has a C compiler
// tell its predefined macros and search path, parses with cc, and walks the
// syntax tree.
package header
