// Package foreign tests the emulated devices with programs that others wrote:
// rdma-core's own, its test suite, and perftest, all as a distribution ships
// them, with package preload's library in front. That they work is the proof
// that the emulation is right beyond what its authors thought of. What they
// can't do is listed with its cause, and counted among what is skipped; what
// skips itself for no known cause fails. A program in testdata handles signals,
// which none of those does.
//
// make test-foreign builds the library, installs the programs and runs the
// tests; RDMA_TEST_PRELOAD names the library.
package foreign
