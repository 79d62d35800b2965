// Package verbs is the backend for every device that speaks standard verbs and
// needs nothing special: Soft-RoCE, siw, irdma, bnxt_re, hns and others. It is
// generic, so that a vendor's backend is asked first.
//
// Programs import it for its effect, which is to register:
//
//	import _ "github.com/goverbs/goverbs/backends/verbs"
package verbs
