// Composite puts blocks of memory that lie anywhere behind one key, so that a
// peer writes across them as if they were one, and adds a block while the peer
// goes on with the key that it has.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/goverbs/goverbs/backends/mlx5" // which has such keys
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
	dom, err := dev.Domain("composite")
	if err != nil {
		return err
	}
	peer, err := newPeer(ctx, dom)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, peer.close()) }()

	// Blocks of a pool, of which the third and the first make a buffer. They could
	// as well be DMA-bufs of a GPU.
	const size = 8
	var blocks [3]*rdma.Memory
	for i := range blocks {
		if blocks[i], err = dom.Alloc(size, &rdma.MemoryConfig{Access: rdma.AccessRemoteWrite}); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, blocks[i].Close()) }()
	}
	buffer, err := dom.Compose(blocks[2].View(), blocks[0].View())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, buffer.Close()) }()
	if err := peer.write(ctx, "across blocks", buffer.Remote()); err != nil {
		return err
	}
	fmt.Printf("%q %q\n", text(blocks[2]), text(blocks[0]))

	// The buffer grows: the second block comes behind the others, under a new key.
	larger, err := buffer.Grow(blocks[1].View())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, larger.Close()) }()
	if err := peer.write(ctx, "through a larger buffer", larger.Remote()); err != nil {
		return err
	}
	if err := peer.write(ctx, "THROUGH", buffer.Remote()); err != nil { // the old key
		return err
	}
	fmt.Printf("%q %q %q\n", text(blocks[2]), text(blocks[0]), text(blocks[1]))
	return nil
}

func text(m *rdma.Memory) string {
	b := make([]byte, m.Size())
	if _, err := m.ReadAt(b, 0); err != nil {
		return err.Error()
	}
	return string(b)
}

// peer is what would run on another machine, and get the Remote of the buffer.
type peer struct {
	qp     *rdma.QP
	source *rdma.Memory
}

func newPeer(ctx context.Context, dom *rdma.Domain) (p *peer, err error) {
	p = new(peer)
	if p.qp, err = dom.CreateQP(nil); err != nil {
		return nil, err
	}
	if p.source, err = dom.Alloc(4096, nil); err != nil {
		return nil, errors.Join(err, p.qp.Close())
	}
	here, err := p.qp.Endpoint()
	if err == nil {
		err = p.qp.Connect(ctx, here) // to itself, which saves a machine
	}
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func (p *peer) write(ctx context.Context, s string, to rdma.Remote) error {
	if _, err := p.source.WriteAt([]byte(s), 0); err != nil {
		return err
	}
	view, err := p.source.Slice(0, uint64(len(s)))
	if err != nil {
		return err
	}
	return p.qp.Write(ctx, view, to)
}

func (p *peer) close() error { return errors.Join(p.qp.Close(), p.source.Close()) }
