// Package rdmatest is what the tests of this module share: the check that
// nothing was leaked, skips that are counted, the devices to run on, and golden
// files.
//
// Every test package that touches devices has
//
//	func TestMain(m *testing.M) { rdmatest.Main(m) }
//
// and imports testdevices, by which emulated devices stand in for missing ones.
//
// Environment variables steer it:
//
//	RDMA_TEST_DEVICE   names of the devices to use, separated by commas; "sim" for
//	                   emulated ones, "sim:infiniband" or "sim:efa" for others than usual,
//	                   and several of these for package rdma's tests to run on each
//	RDMA_TEST_BACKEND  the only backend that package rdma's tests register, such as "verbs"
//	RDMA_TEST_SKIPLOG  a file that gets the reason of each skip, a line each
//	RDMA_TEST_REQUIRE  1 turns every Skip into a failure: the run was promised a device
//	RDMA_TEST_LONG     1 runs the tests that take minutes
//	RDMADEBUG          leak=2 records where each object was created
package rdmatest
