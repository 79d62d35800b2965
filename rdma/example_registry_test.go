package rdma_test

import (
	"errors"
	"fmt"
	"log"
	"net/netip"

	_ "github.com/goverbs/goverbs/backends/mlx5"
	_ "github.com/goverbs/goverbs/backends/verbs"
	"github.com/goverbs/goverbs/rdma"
)

// Lists what this machine has, what not, and why.
func ExampleDevices() {
	devices, err := rdma.Devices()
	if err != nil {
		log.Print(err) // rdma-core is not installed, for example
	}
	for _, d := range devices {
		log.Printf("%s: %s, %v", d.Name, d.Backend, d.Speed())
	}
	for _, s := range rdma.Skipped() {
		log.Print("left out: ", s)
	}
	log.Print("backends: ", rdma.Backends())
	// Output:
}

// Opens a device, with queues that are deeper than usual and no more than two
// retries before a peer counts as lost.
func ExampleOpen() {
	dev, err := rdma.Open("mlx5_7", &rdma.Config{MaxSendWR: 4096, RetryCount: 2})
	switch {
	case errors.Is(err, rdma.ErrNoDevice), errors.Is(err, errors.ErrUnsupported):
		fmt.Println("use TCP instead")
		return
	case err != nil:
		log.Fatal(err)
	}
	defer dev.Close()
	// Output: use TCP instead
}

// Tells which rdma-core the process loaded.
func ExampleLibrary() {
	lib, err := rdma.Library()
	if err != nil {
		log.Print(err)
		return
	}
	log.Printf("%s of rdma-core %s, without %v", lib.Path, lib.Version, lib.Missing)
}

// Chooses an address of a port by what it is, rather than by its index.
func ExamplePortInfo_SelectGID() {
	linkLocal, _ := rdma.ParseGID("fe80::1")
	data, _ := rdma.ParseGID("10.0.0.1")
	storage, _ := rdma.ParseGID("10.9.0.1")
	port := rdma.PortInfo{Number: 1, LinkLayer: rdma.LinkLayerEthernet, GIDs: []rdma.GIDEntry{
		{Index: 0, GID: linkLocal, Type: rdma.GIDTypeRoCEv2, NetDev: "eth0"},
		{Index: 2, GID: data, Type: rdma.GIDTypeRoCEv2, NetDev: "eth0"},
		{Index: 4, GID: storage, Type: rdma.GIDTypeRoCEv2, NetDev: "eth0.9"},
	}}

	best, _ := port.SelectGID(rdma.GIDChoice{})
	fmt.Println(best)
	there, _ := port.SelectGID(rdma.GIDChoice{Subnet: netip.MustParsePrefix("10.9.0.0/16")})
	fmt.Println(there)
	_, err := port.SelectGID(rdma.GIDChoice{Type: rdma.GIDTypeRoCEv1})
	fmt.Println(err)
	// Output:
	// 2: ::ffff:10.0.0.1 RoCE v2 eth0
	// 4: ::ffff:10.9.0.1 RoCE v2 eth0.9
	// port 1 has no GID that is RoCE v1; its table has 0: fe80::1 RoCE v2 eth0, 2: ::ffff:10.0.0.1 RoCE v2 eth0, 4: ::ffff:10.9.0.1 RoCE v2 eth0.9
}
