// Hello writes a few bytes by RDMA, on one device and without a peer: the
// queue pair is connected to itself.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	_ "github.com/goverbs/goverbs/backends/verbs" // any device that speaks standard verbs
	"github.com/goverbs/goverbs/rdma"
)

func main() {
	if err := hello(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func hello(ctx context.Context) error {
	devices, err := rdma.Devices()
	if err != nil {
		return err
	}
	if len(devices) == 0 {
		return errors.New("no usable RDMA device here; cmd/rdmainfo tells why")
	}
	dev, err := rdma.Open(devices[0].Name, nil)
	if err != nil {
		return err
	}
	defer dev.Close()
	dom, err := dev.Domain("hello") // a protection domain
	if err != nil {
		return err
	}
	defer dom.Close()

	src, err := dom.Alloc(4096, nil)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := dom.Alloc(4096, &rdma.MemoryConfig{Access: rdma.AccessRemoteWrite})
	if err != nil {
		return err
	}
	defer dst.Close()

	qp, err := dom.CreateQP(nil)
	if err != nil {
		return err
	}
	defer qp.Close()
	peer, err := qp.Endpoint() // what rdma.Exchange gets from another machine
	if err != nil {
		return err
	}
	if err := qp.Connect(ctx, peer); err != nil {
		return err
	}

	if _, err := src.WriteAt([]byte("hello, remote memory"), 0); err != nil {
		return err
	}
	if err := qp.Write(ctx, src.View(), dst.Remote()); err != nil {
		return err
	}
	return dst.Do(func(b []byte) error {
		fmt.Printf("%s: %s\n", dev.Name(), b[:20])
		return nil
	})
}
