//go:build linux && cgo

package main

/*
extern void goverbs_sim_ready(void);

// Go starts on a thread of its own. The program must not look for devices
// before it has: a call into Go waits for that.
__attribute__((constructor)) static void wait_for_go(void)
{
	goverbs_sim_ready();
}
*/
import "C"

import _ "github.com/goverbs/goverbs/sim"

//export goverbs_sim_ready
func goverbs_sim_ready() {}
