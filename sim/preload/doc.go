// Preload is a shared library with the emulated devices of package sim, for
// programs that are not written in Go:
//
//	go build -buildmode=c-shared -o libsim.so ./sim/preload
//	LD_PRELOAD=$PWD/libsim.so ibv_devinfo
//
// The devices are the default ones. Two programs of a user that preload it are
// connected.
package main

func main() {}
