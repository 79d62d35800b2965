package rdma_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"

	"github.com/goverbs/goverbs/rdma"
)

// serve lets one client write into memory, and returns what it wrote.
func serve(ctx context.Context, dom *rdma.Domain, listener net.Listener) (string, error) {
	conn, err := listener.Accept()
	if err != nil {
		return "", err
	}
	defer conn.Close()
	inbox, err := dom.Alloc(4096, &rdma.MemoryConfig{Access: rdma.AccessRemoteWrite})
	if err != nil {
		return "", err
	}
	defer inbox.Close()
	qp, err := dom.CreateQP(nil)
	if err != nil {
		return "", err
	}
	defer qp.Close()
	written, err := qp.StartRecv(ctx, inbox.View()) // of the client's immediate data
	if err != nil {
		return "", err
	}
	if err := rdma.Exchange(ctx, conn, qp); err != nil {
		return "", err
	}
	if err := json.NewEncoder(conn).Encode(inbox.Remote()); err != nil {
		return "", err
	}
	if err := written.Wait(ctx); err != nil {
		return "", err
	}
	message := make([]byte, written.Result().Bytes)
	_, err = inbox.ReadAt(message, 0)
	return string(message), err
}

// dial writes a message of up to 4096 bytes into the memory of the server at
// addr.
func dial(ctx context.Context, dom *rdma.Domain, addr, message string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	outbox, err := dom.Alloc(len(message), nil)
	if err != nil {
		return err
	}
	defer outbox.Close()
	if _, err := outbox.WriteAt([]byte(message), 0); err != nil {
		return err
	}
	qp, err := dom.CreateQP(nil)
	if err != nil {
		return err
	}
	defer qp.Close()
	if err := rdma.Exchange(ctx, conn, qp); err != nil {
		return err
	}
	var inbox rdma.Remote
	if err := json.NewDecoder(conn).Decode(&inbox); err != nil {
		return err
	}
	return qp.WriteImm(ctx, outbox.View(), inbox, 0)
}

// A server and a client meet over TCP. Then the client writes into the server's
// memory, whose processor has no part in that but to hear of it.
func ExampleExchange() {
	var ctx context.Context
	var dom *rdma.Domain // of a device of the machine

	// On one machine:
	listener, err := net.Listen("tcp", ":7471")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer listener.Close()
	fmt.Println(serve(ctx, dom, listener))

	// On another one:
	fmt.Println(dial(ctx, dom, "server:7471", "hello"))
}
