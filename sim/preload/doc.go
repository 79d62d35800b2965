// Preload is a shared library with the emulated devices of package sim, for
// programs that are not written in Go:
//
//	go build -buildmode=c-shared -o libsim.so ./sim/preload
//	LD_PRELOAD=$PWD/libsim.so ibv_devinfo
//
// The devices are the default ones. Two programs of a user that preload it are
// connected.
//
// # Threads and signals
//
// A thread that calls verbs needs 32 KiB of stack, and once it has called one it
// should not block SIGSEGV or SIGBUS: memory that is not there, for which verbs
// fail otherwise, ends the process then. Its first verb unblocks these two and
// SIGILL, SIGTRAP, SIGFPE, SIGSTKFLT, SIGCHLD, SIGURG and SIGPROF.
//
// The program may have handlers for any signal, SIGSEGV and SIGBUS included, if
// it installs them by libc's functions. They run as if by SA_ONSTACK: on threads
// that have called verbs, and on the library's own, they have 32 KiB, unless the
// thread had a stack from sigaltstack(2) before; a thread must not turn off the one
// that it has then. Go sends SIGURG to its threads,
// so a handler is called for more than the program's own. To ignore SIGURG does
// no harm. SIGSEGV and SIGBUS that are ignored are not so in a program that takes
// this one's place by exec.
package main

func main() {}
