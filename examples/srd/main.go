// Srd gathers blocks of memory from several peers by scalable reliable datagrams
// (SRD), which Amazon's Elastic Fabric Adapters have. One queue pair reads from
// all of them at once, without a connection to any. Requests end in no order, so
// the program counts them.
//
// The peers are queue pairs of the same device here. Elsewhere both sides tell
// each other their endpoints, and the peers what to read, over any connection:
// all of that has a JSON form.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/goverbs/goverbs/backends/efa"
	"github.com/goverbs/goverbs/rdma"
)

const (
	peers     = 4
	blockSize = 64 << 10 // of each peer
	pieceSize = 4 << 10  // that one request reads
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer) error {
	devices, err := efa.Devices()
	if err != nil {
		return err
	}
	if len(devices) == 0 {
		return fmt.Errorf("no EFA device here; left out: %v", rdma.Skipped())
	}
	dev, err := efa.Open(devices[0].Name, nil)
	if err != nil {
		return err
	}
	defer dev.Close()
	dom, err := dev.Domain("srd")
	if err != nil {
		return err
	}
	defer dom.Close()
	mem, err := dom.Alloc(peers*blockSize, nil)
	if err != nil {
		return err
	}
	defer mem.Close()
	cq, err := dev.CreateCQ(nil)
	if err != nil {
		return err
	}
	defer cq.Close()
	qp, err := dom.CreateSRD(&rdma.QPConfig{CQ: cq})
	if err != nil {
		return err
	}
	defer qp.Close()
	reader, err := qp.Endpoint()
	if err != nil {
		return err
	}

	batch := qp.Batch()
	for i := range uint64(peers) {
		source, err := newSource(ctx, dom, reader, byte('a'+i))
		if err != nil {
			return err
		}
		defer source.close()
		peer, err := qp.Peer(ctx, source.endpoint)
		if err != nil {
			return err
		}
		batch.To(peer)
		for off := uint64(0); off < blockSize; off += pieceSize {
			into, err := mem.Slice(i*blockSize+off, pieceSize)
			if err != nil {
				return err
			}
			from, err := source.block.Remote().Slice(off, pieceSize)
			if err != nil {
				return err
			}
			batch.Read(into, from, i) // all reads from one peer have one token
		}
	}

	if err := gather(ctx, cq, batch); err != nil {
		return err
	}
	return mem.Do(func(b []byte) error {
		for i := range peers {
			block := b[i*blockSize:][:blockSize]
			fmt.Fprintf(out, "peer %d gave %d times %c\n", i, bytes.Count(block, block[:1]), block[0])
		}
		return nil
	})
}

// gather posts what is to be read from all peers and waits for it, in whatever
// order it comes.
func gather(ctx context.Context, cq *rdma.CQ, batch *rdma.Batch) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var counter rdma.Counter
	go func() { stop(count(ctx, cq, &counter)) }()
	if _, err := batch.PostWait(ctx); err != nil {
		return because(ctx, err)
	}
	for i := range uint64(peers) {
		if err := counter.WaitToken(ctx, i, blockSize/pieceSize); err != nil {
			return fmt.Errorf("peer %d: %w", i, because(ctx, err))
		}
	}
	return nil
}

// because returns why ctx ended, where err says no more than that it did.
func because(ctx context.Context, err error) error {
	if errors.Is(err, context.Canceled) {
		return context.Cause(ctx)
	}
	return err
}

// count adds what completes to a counter until ctx ends or the queue does.
func count(ctx context.Context, cq *rdma.CQ, counter *rdma.Counter) error {
	wcs := make([]rdma.WC, 64)
	for {
		n, err := cq.Wait(ctx, wcs)
		counter.Add(wcs[:n])
		if err != nil {
			return err
		}
	}
}
