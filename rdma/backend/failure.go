package backend

import "github.com/goverbs/goverbs/zz_generated/ibverbs"

// Interpreter is a [Backend] whose devices have codes of their own for failed
// requests, that say more than the status which the library makes of them.
type Interpreter interface {
	Backend

	// Interpret returns which status a device's code stands for, and what it
	// means in a few words. ok is false for a code that adds nothing.
	Interpret(code uint32) (status ibverbs.WCStatus, meaning string, ok bool)
}
