// Package sim gives a program RDMA devices without hardware. Importing it is
// enough:
//
//	import _ "github.com/goverbs/goverbs/sim"
//
// The process then has two emulated ConnectX-7 devices, sim_mlx5_0 and
// sim_mlx5_1, whose Ethernet ports are connected, and an Elastic Fabric
// Adapter, sim_efa_0. [New] orders others.
//
// The devices are below the verbs libraries: libibverbs, libmlx5 and libefa,
// unmodified and as installed, find them, open them, write work requests into
// real queues and read completions from them. So what is tested is the program,
// this module and the libraries together; only the kernel and the card are
// emulated. There is no need for root, kernel modules or other processes.
//
// What the emulated devices check, they check where hardware does: keys,
// protection domains, rights and bounds at the owner of the memory, states and
// paths at both ends. Completions with errors carry the statuses and vendor
// codes of the real ones. A completion queue of ConnectX that a program overruns
// is in error from then on, with the queue pairs that complete into it; that of an
// EFA is written over.
//
// # What a test can do
//
// [Fabric.FailVerb], [Fabric.FailRequest] and [Fabric.FailRecv] plan what goes
// wrong: a verb with an error, a request with a status, packets that are lost or
// late, receivers that are not ready. [Device.SetLink], [Device.SetGID],
// [Device.Remove] and others change the world around a program, which gets the
// events that belong to it; [Device.Raise] sends it any event. [Fabric.Pause] and
// [Fabric.Step] decide what happens when. [Fabric.Trace] and [Device.Counters]
// tell what devices did.
//
// How fast the machine is matters where a device has to give up at some time. A
// request waits for a peer that does not answer as long as [Config.Patience]
// says, and for one that is not ready through as many RNR timers as it has
// retries. What another process did not answer before it ended fails 100 ms later
// at most; one that leaves gives others 2 s to take what it sent.
//
// # Elastic Fabric Adapters
//
// Their reliable datagrams (SRD) end each by itself: an error concerns one
// request, waiting for one peer holds up no other, and the order of posting is
// kept by chance only. [Fabric.Reorder] leaves chance less room. A peer reads
// and writes only through a device that has an address handle for it, made by
// the process that has the queue pair. Real adapters raise no events of ports and
// queue pairs, and their ports are always active; these do as other devices do.
// What an older adapter lacks is said by [DeviceConfig]; what the installed libefa
// lacks, such as RDMA write before rdma-core 46, the device can't make up for.
//
// Their completion channels may carry an event that nobody asked for, after
// entries of the queue were taken: when a program asks for an event and takes
// entries right afterwards, the device sees only the latter, and must assume
// the former.
//
// # What is not emulated
//
// Of ConnectX: multicast, raw packets and flow steering, tag matching,
// signatures and encryption, memcpy by the device, operations on its memory by
// address, the page with its clock, streams of DC initiators, masked atomics of
// more than 8 bytes, unordered connections, compressed completions, packet pacing,
// bonded ports, and firmware commands but those that make indirect keys and tell
// capabilities. Memory that is paged on demand is there when it is used. Of EFA:
// longer send requests, processing hints, and completion queues in memory of the
// program's or in several parts. Of both: connections by librdmacm, queue pairs for
// management, and automatic path migration. Of networks: congestion, rates and
// time, and links that are too narrow for a path's packets; service levels and
// traffic classes arrive and change nothing. Peers serve any number of reads at a
// time, and answer them in packets of any size. A doorbell of ConnectX is taken for
// rung when its record is written, unless [Config.StrictDoorbells] says otherwise.
//
// # What it needs
//
// Linux with cgo, and rdma-core's libraries (on Debian the packages libibverbs1
// and ibverbs-providers); the tests run with releases 44 and 56, and 65 was tried.
// Without them the import does nothing: programs start, and devices are
// unsupported as they would be without sim, which [New] tells too. The same goes
// for statically linked programs.
//
// Idle devices cost no CPU: what is posted wakes them, by userfaultfd(2) on Linux
// 5.19 and later. Where that is barred they look 200 times a second, and so they
// do while a queue pair is in ERR, since posting a receive there rings nothing.
//
// # Several processes
//
// The processes of a user on a host have the same devices if they order the
// same: queue pairs of one process can be connected with those of another, and
// see it end. A program that leaves without closing its device has acknowledged
// what it received. The shared queue of an extended connection (XRC) has to be in
// the process that has its receiving end, and so has who opens that by number.
// (libmlx5, up to 64 at least, crashes when it is to destroy what ibv_open_qp
// returned.)
//
// What a test does to a fabric it does in its own process. Another one has its own
// faults, links and removed devices, and its requests are not held up while this
// one's devices pause, nor are its answers. A process that is stopped answers when
// it goes on; meanwhile up to 64 MiB wait for it, and datagrams and messages of
// unreliable connections beyond that are lost.
//
// Devices are not for a child that was forked and runs no other program: it may
// close what it inherited, and finds no devices of its own. Go programs have no
// such children, those with the shared library of package preload may.
//
// # What it replaces
//
// While sim is imported the process sees only emulated devices, whatever the
// machine has; [Disable] undoes that. Programs that it starts have the machine's,
// unless they import sim themselves: SYSFS_PATH, by which libibverbs finds its
// devices, is set for the C libraries of this process alone. (What a program with
// the shared library of package preload starts inherits both.)
package sim
