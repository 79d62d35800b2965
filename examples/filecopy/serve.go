package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"

	"github.com/goverbs/goverbs/rdma"
)

// serve offers a file to one client, then takes it back into another one.
func serve(ctx context.Context, listener net.Listener, device, path, back string) (err error) {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	st, err := file.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", path)
	}
	out, err := newPendingFile(back)
	if err != nil {
		return err
	}
	defer out.discard()

	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	dev, err := openDevice(device) // before a client waits for it
	if err != nil {
		return err
	}
	defer dev.Close()
	fmt.Println("serving", path, "at", listener.Addr())
	conn, err := listener.Accept()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	defer conn.Close()
	l, err := newLink(ctx, dev, rdma.AccessRemoteRead|rdma.AccessRemoteWrite, conn)
	if err != nil {
		return err
	}
	defer l.close()
	ctx, done := l.untilGone(ctx)
	defer done(&err)

	if err := l.ctl.send(offer{filepath.Base(path), st.Size(), l.window.Remote()}); err != nil {
		return err
	}
	sent, err := l.offerChunks(ctx, file, st.Size())
	if err := l.compare(sent, err); err != nil {
		return err
	}
	came, err := l.takeChunks(ctx, out, st.Size())
	if err == nil && came != sent {
		err = errors.New("what came back is not what was sent")
	}
	if err := l.compare(came, err); err != nil {
		return err
	}
	return out.commit()
}

// offerChunks puts the file into the window, chunk by chunk, from where the
// peer reads it. It returns the file's sum.
func (l *link) offerChunks(ctx context.Context, file io.Reader, size int64) (string, error) {
	sum := sha256.New()
	for k := range chunks(size) {
		if k >= slots { // the peer has read what was in the slot
			if err := l.awaitSignal(ctx, k-slots); err != nil {
				return "", err
			}
		}
		view, err := l.slot(k, chunkLen(size, k))
		if err != nil {
			return "", err
		}
		err = view.Do(func(b []byte) error {
			if _, err := io.ReadFull(file, b); err != nil {
				return fmt.Errorf("the file changed while it was read: %w", err)
			}
			sum.Write(b)
			return nil
		})
		if err != nil {
			return "", err
		}
		if err := l.signal(ctx, k); err != nil {
			return "", err
		}
	}
	for k := max(chunks(size)-slots, 0); k < chunks(size); k++ {
		if err := l.awaitSignal(ctx, k); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// takeChunks writes to out what the peer writes into the window. It returns
// the sum of it.
func (l *link) takeChunks(ctx context.Context, out io.Writer, size int64) (string, error) {
	sum := sha256.New()
	for k := range chunks(size) {
		if err := l.awaitSignal(ctx, k); err != nil { // it came with the data
			return "", err
		}
		view, err := l.slot(k, chunkLen(size, k))
		if err != nil {
			return "", err
		}
		err = view.Do(func(b []byte) error {
			sum.Write(b)
			_, err := out.Write(b)
			return err
		})
		if err != nil {
			return "", err
		}
		if err := l.signal(ctx, k); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// compare tells the peer this side's sum, or why there is none, and checks that
// the peer's is the same.
func (l *link) compare(sum string, err error) error {
	mine := verdict{SHA256: sum}
	if err != nil {
		mine.Error = err.Error()
	}
	sendErr := l.ctl.send(mine)
	if err != nil {
		return err
	}
	if sendErr != nil {
		return sendErr
	}
	var theirs verdict
	if err := l.ctl.receive(&theirs); err != nil {
		return err
	}
	switch {
	case theirs.Error != "":
		return theirs.failure()
	case theirs.SHA256 != sum:
		return fmt.Errorf("sha256 differs: %s here, %s at the peer", sum, theirs.SHA256)
	}
	return nil
}
