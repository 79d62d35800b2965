package rdma_test

import (
	"context"
	"errors"
	"net"

	"github.com/goverbs/goverbs/rdma"
)

// Both ends run this over a connection of their own. One queue pair serves all
// peers: each request names the one it goes to.
func ExampleDatagramQP() {
	send := func(ctx context.Context, dom *rdma.Domain, conns []net.Conn, message rdma.View) error {
		qp, err := dom.CreateUD(nil)
		if err != nil {
			return err
		}
		defer qp.Close() // and its peers
		for _, conn := range conns {
			peer, err := rdma.ExchangePeer(ctx, conn, qp)
			if err != nil {
				return err
			}
			if err := peer.Send(ctx, message); err != nil {
				return err
			}
		}
		return nil
	}
	_ = send
}

// A program that would rather write than send finds out whether it can.
func ExampleDatagramQP_Can() {
	deliver := func(ctx context.Context, qp *rdma.DatagramQP, peer *rdma.Peer, data rdma.View, remote rdma.Remote) error {
		if err := qp.Can(rdma.OpWrite); errors.Is(err, errors.ErrUnsupported) {
			return peer.Send(ctx, data)
		}
		return peer.Write(ctx, data, remote)
	}
	_ = deliver
}

// Requests to several peers go to the device in one call, or in a few if there
// are more than the queue has room for: another goroutine polls.
func ExampleBatch_To() {
	broadcast := func(ctx context.Context, qp *rdma.DatagramQP, peers []*rdma.Peer, message rdma.View) error {
		batch := qp.Batch()
		for i, peer := range peers {
			batch.To(peer).Send(message, uint64(i))
		}
		_, err := batch.PostWait(ctx)
		return err
	}
	_ = broadcast
}
