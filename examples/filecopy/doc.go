// Filecopy copies a file from one process to another and back by RDMA.
//
// The server offers a file; the client reads it chunk by chunk out of the
// server's memory (RDMA read), stores it, and writes it back into the server's
// memory (RDMA write), which stores it elsewhere. Both compare SHA-256 sums.
//
//	filecopy serve -back copy2 file              on one host
//	filecopy get -from host:7471 copy1           on another one
//
// A TCP connection introduces both sides and tells when the other one dies; no
// byte of the file passes through it. Each side registers 4 MiB, whatever the
// size of the file.
//
// "filecopy demo" does both on this machine, in two processes. Built with
// -tags sim they import package sim too, and find emulated devices.
package main
