package rdma_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"

	"github.com/goverbs/goverbs/rdma"
)

// Both ends run this over a connection of their own, on which the peer then
// tells where its memory is. The queue pair has no CQ: the library drives it.
func ExampleQP_Write() {
	write := func(ctx context.Context, dom *rdma.Domain, conn net.Conn, data rdma.View, peer rdma.Remote) error {
		qp, err := dom.CreateQP(nil)
		if err != nil {
			return err
		}
		defer qp.Close()
		if err := rdma.Exchange(ctx, conn, qp); err != nil {
			return err
		}
		return qp.Write(ctx, data, peer)
	}
	_ = write
}

// With a completion queue of its own a program posts many requests in one
// call, and gets their ends by token. Those that the queue has no room for stay
// in the batch.
func ExampleBatch() {
	transfer := func(ctx context.Context, qp *rdma.QP, cq *rdma.CQ, pieces []rdma.View, peer rdma.Remote) error {
		batch := qp.Batch()
		for i, piece := range pieces {
			target, err := peer.Slice(uint64(i)*piece.Size(), piece.Size())
			if err != nil {
				return err
			}
			batch.Write(piece, target, uint64(i))
		}
		wcs := make([]rdma.WC, 64)
		for left := len(pieces); left > 0; {
			if _, err := batch.Post(); err != nil && !errors.Is(err, rdma.ErrQueueFull) {
				return err
			}
			n, err := cq.Wait(ctx, wcs)
			if err != nil {
				return err
			}
			for i := range n {
				if err := wcs[i].Err(); err != nil {
					return fmt.Errorf("piece %d: %w", wcs[i].Token, err)
				}
			}
			left -= n
		}
		return nil
	}
	_ = transfer
}

// A program that wants to know when the link goes down reads the device's
// events.
func ExampleDevice_Events() {
	watch := func(ctx context.Context, dev *rdma.Device) error {
		events, err := dev.Events()
		if err != nil {
			return err
		}
		defer events.Close()
		for {
			e, err := events.Next(ctx)
			if err != nil {
				return err
			}
			if e.Type == rdma.EventPortErr {
				log.Printf("port %d of %s is down", e.Port, dev.Name())
			}
		}
	}
	_ = watch
}
