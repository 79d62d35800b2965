package rdma_test

import (
	"encoding/json"
	"fmt"

	"github.com/goverbs/goverbs/rdma"
)

func ExampleView_Slice() {
	var buffer *rdma.Memory // from Domain.Alloc
	header, err := buffer.View().Slice(0, 64)
	if err != nil {
		fmt.Println(err)
		return
	}
	payload, err := buffer.View().Slice(64, buffer.Size()-64)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(header, payload)
}

func ExampleMemory_Do() {
	var buffer *rdma.Memory // from Domain.Alloc
	err := buffer.Do(func(b []byte) error {
		copy(b, "hello")
		return nil
	})
	fmt.Println(err)
}

func ExampleDomain_Alloc() {
	dev, err := rdma.Open("mlx5_0", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer dev.Close()
	dom, err := dev.Domain("example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer dom.Close()
	buffer, err := dom.Alloc(1<<20, &rdma.MemoryConfig{Access: rdma.AccessRemoteRead})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer buffer.Close()
	fmt.Println(buffer.Remote()) // for a peer, who may read it
}

func ExampleRemote() {
	// The owner of some memory makes this by view.Remote().
	remote := rdma.Remote{Addr: 0x7f5c00000000, Size: 1 << 20, RKey: 0x1234, Device: "mlx5_0"}
	text, err := json.Marshal(remote)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(text))

	// Its peer takes from it what it needs.
	var received rdma.Remote
	if err := json.Unmarshal(text, &received); err != nil {
		fmt.Println(err)
		return
	}
	header, err := received.Slice(4096, 64)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%d bytes at %#x on %s\n", header.Size, header.Addr, header.Device)
	// Output:
	// {"addr":"0x7f5c00000000","size":1048576,"rkey":4660,"device":"mlx5_0"}
	// 64 bytes at 0x7f5c00001000 on mlx5_0
}

func ExampleRemote_Slice() {
	remote := rdma.Remote{Addr: 0x1000, Size: 100, RKey: 7, Device: "mlx5_0"}
	_, err := remote.Slice(90, 20)
	fmt.Println(err)
	// Output: rdma: slice mlx5_0: 20 bytes from offset 90 are not within the region of 100 bytes at 0x1000
}

func ExampleEndpoint() {
	// One side makes this by qp.Endpoint().
	endpoint := rdma.Endpoint{
		QPN:                17,
		PSN:                4711,
		GID:                rdma.GID{10: 0xff, 11: 0xff, 12: 10, 15: 1},
		GIDType:            rdma.GIDTypeRoCEv2,
		LinkLayer:          rdma.LinkLayerEthernet,
		MTU:                rdma.MTU1024,
		MaxReadDepth:       16,
		MaxReadDepthTarget: 16,
	}
	text, err := json.Marshal(endpoint)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(text))

	// The other gives it to qp.Connect.
	var received rdma.Endpoint
	if err := json.Unmarshal(text, &received); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(received.GID, received.QPN)
	// Output:
	// {"version":1,"qpn":17,"psn":4711,"gid":"::ffff:10.0.0.1","gidType":"RoCE v2","linkLayer":"Ethernet","mtu":1024,"maxReadDepth":16,"maxReadDepthTarget":16}
	// ::ffff:10.0.0.1 17
}
