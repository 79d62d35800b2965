package main

import (
	"bytes"
	"context"

	"github.com/goverbs/goverbs/rdma"
)

// source is a peer with a block of memory to read.
type source struct {
	qp       *rdma.DatagramQP
	endpoint rdma.Endpoint
	block    *rdma.Memory
}

// newSource makes a block that is full of one letter, for the one who reads it.
func newSource(ctx context.Context, dom *rdma.Domain, reader rdma.Endpoint, letter byte) (_ *source, err error) {
	s := new(source)
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.block, err = dom.Alloc(blockSize, &rdma.MemoryConfig{Access: rdma.AccessRemoteRead}); err != nil {
		return nil, err
	}
	if _, err = s.block.WriteAt(bytes.Repeat([]byte{letter}, blockSize), 0); err != nil {
		return nil, err
	}
	if s.qp, err = dom.CreateSRD(nil); err != nil {
		return nil, err
	}
	if s.endpoint, err = s.qp.Endpoint(); err != nil {
		return nil, err
	}
	_, err = s.qp.Peer(ctx, reader) // a device answers only those whom it knows
	return s, err
}

func (s *source) close() {
	if s.qp != nil {
		s.qp.Close()
	}
	if s.block != nil {
		s.block.Close()
	}
}
