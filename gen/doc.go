// Gen writes goverbs' raw bindings from the C headers of rdma-core.
//
//	go run ./gen command [flags]
//
// It works in two halves with files in between that people read and review.
//
// The first half turns headers into facts: the names, types, offsets, sizes and
// values that a program compiled against them relies on, one a line, without
// any text of the headers. The facts of some versions of rdma-core are pinned in
// snapshots/, and compiled into gen.
//
//	snapshot   headers -> facts of one version
//	diff       what changed between two versions
//	history    facts of many versions -> the version that brought each fact
//	check      pinned facts against the headers of this machine
//
// The second half, emit, merges the pinned facts, adds what headers do not say
// (tables/) and the few pieces that are written by hand (csrc/, gosrc/), and writes
// the packages below zz_generated/. It needs no header, no C compiler and no
// network; the same facts give the same files. go generate in the root of the
// module runs it.
//
// # Versions
//
// The bindings have what the newest pinned version has. They work with the
// libraries of every version from the oldest pinned one on, because rdma-core
// only adds: merging refuses a field that moved, a value that changed or a
// function that went away. What an older library lacks is known by the history
// and told when it is called.
//
// A version is added from a folder of rdma-core's sources:
//
//	gen snapshot -src DIR -o gen/snapshots/rdma-core-65.txt
//	gen history -o gen/snapshots/history.txt
//	gen diff 64 65
//	go generate
//
// Where versions are left out, history dates what they brought by the next one
// that is pinned, unless it is given their snapshots too.
//
// The compiler has to be gcc, and a snapshot is of a 64-bit Linux; those that
// are pinned are of linux/amd64. Headers that come from two places, such as a
// tree of the one version and /usr/include of another, are refused.
//
// # Check
//
// Check compiles offsets, sizes, alignments and values as static assertions
// against the headers of the machine, or of a tree or source folder that the
// flags name. Headers between two pinned versions, or newer than all, may have
// more than the pinned version before them, at the end of a struct, and no less.
// With -snapshot, headers of a pinned version have to agree in every fact:
// functions and their parameters, too. Each fact that differs is named.
//
// Those who need bindings for just the surface of one version write them into a
// module of their own:
//
//	gen emit -max 50 -out DIR
package main
