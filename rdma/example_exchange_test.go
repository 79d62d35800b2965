package rdma_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"os"

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
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		conn.Read(make([]byte, 1)) // ends when the client does, which sends no more
		cancel()
	}()
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
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
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
	if err := qp.WriteImm(ctx, outbox.View(), inbox, 0); err != nil {
		return err
	}
	// Until the server ends: it would take an end before for a failure.
	_, err = io.Copy(io.Discard, conn)
	return err
}

// A server and a client meet over TCP. Then the client writes into the server's
// memory, whose processor has no part in that but to hear of it.
//
// They are two processes: the program runs without arguments as the server, and
// elsewhere with the server's address, such as 10.0.0.1:7471, as the client.
func ExampleExchange() {
	ctx := context.Background()
	var dom *rdma.Domain // of a device of the machine

	if len(os.Args) > 1 { // the client
		if err := dial(ctx, dom, os.Args[1], "hello"); err != nil {
			log.Fatal(err)
		}
		return
	}

	listener, err := net.Listen("tcp", ":7471") // the server
	if err != nil {
		log.Fatal(err)
	}
	defer listener.Close()
	message, err := serve(ctx, dom, listener)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(message)
}
