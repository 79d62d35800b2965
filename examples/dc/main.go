// DC writes to several targets through one initiator: dynamic connections need
// one sending queue pair for a whole cluster, where reliable connections need
// one for each peer.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/goverbs/goverbs/backends/mlx5" // dynamic connections are theirs
	"github.com/goverbs/goverbs/rdma"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) (err error) {
	devices, err := mlx5.Devices()
	if err != nil {
		return err
	}
	if len(devices) == 0 {
		return fmt.Errorf("no mlx5 device here; left out: %v", rdma.Skipped())
	}
	dev, err := mlx5.Open(devices[0].Name, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	dom, err := dev.Domain("dc")
	if err != nil {
		return err
	}
	initiator, err := dom.CreateDCInitiator(nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, initiator.Close()) }()
	source, err := dom.Alloc(4096, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()

	for i := range 3 {
		target, err := newTarget(dom)
		if err != nil {
			return err
		}
		defer target.close()

		peer, err := initiator.Peer(ctx, target.endpoint)
		if err != nil {
			return err
		}
		greeting := fmt.Sprintf("hello, target %d", i)
		if _, err := source.WriteAt([]byte(greeting), 0); err != nil {
			return err
		}
		if err := peer.Write(ctx, source.View(), target.memory.Remote()); err != nil {
			return err
		}
		got := make([]byte, len(greeting))
		if _, err := target.memory.ReadAt(got, 0); err != nil {
			return err
		}
		fmt.Printf("QP %#x on %s: %s\n", target.endpoint.QPN, dev.Name(), got)
	}
	return nil
}

// target is what would run on another machine, and send its endpoint and the
// Remote of its memory here.
type target struct {
	qp       *rdma.DatagramQP
	memory   *rdma.Memory
	endpoint rdma.Endpoint
}

func newTarget(dom *rdma.Domain) (t *target, err error) {
	t = new(target)
	if t.qp, err = dom.CreateDCTarget(nil); err != nil {
		return nil, err
	}
	if t.memory, err = dom.Alloc(4096, &rdma.MemoryConfig{Access: rdma.AccessRemoteWrite}); err != nil {
		return nil, errors.Join(err, t.qp.Close())
	}
	if t.endpoint, err = t.qp.Endpoint(); err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

func (t *target) close() error { return errors.Join(t.qp.Close(), t.memory.Close()) }
