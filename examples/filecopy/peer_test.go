package main

import (
	"context"
	"errors"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
)

func TestSilentPeerIsNotWaitedForWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		if err := patiently(t.Context(), until); err != errPeerSilent {
			t.Errorf("a peer that does nothing: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := patiently(ctx, until); !errors.Is(err, context.Canceled) {
			t.Errorf("interrupted: %v", err)
		}
		here, there := net.Pipe()
		defer there.Close()
		defer here.Close()
		if err := newControl(here).receive(new(offer)); err != errPeerSilent {
			t.Errorf("a peer that says nothing: %v", err)
		}
	})
}

func TestNonsenseOfThePeerIsAnError(t *testing.T) {
	for _, said := range []string{
		"\n", "{}}\n", "[1]\n", `{"window":{"addr":"7"}}` + "\n", `{"size":1e99}` + "\n", "half a line",
		strings.Repeat("x", 8*maxLine), strings.Repeat("{", 8*maxLine) + "\n", strings.Repeat("\n", 100),
	} {
		here, there := net.Pipe()
		c := newControl(here)
		go func() {
			there.Write([]byte(said)) // fails once enough was said
			there.Close()
		}()
		if err := c.receive(new(offer)); err == nil {
			t.Errorf("%.20q was taken for an offer", said)
		}
		here.Close()
		<-c.gone
	}
}

func TestChunksOfTheLargestFile(t *testing.T) {
	for _, size := range []int64{0, 1, chunkSize, chunkSize + 1, math.MaxInt64} {
		n := chunks(size)
		var last int64
		if n > 0 {
			last = int64(chunkLen(size, n-1))
		}
		if max(n-1, 0)*chunkSize+last != size || n > 0 && last == 0 {
			t.Errorf("%d bytes: %d chunks, the last one of %d", size, n, last)
		}
	}
}

func TestFileThatCannotGetItsNameLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	final := filepath.Join(dir, "copy")
	f, err := newPendingFile(final)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(final, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := f.commit(); err == nil {
		t.Error("a folder was replaced")
	}
	f.discard()
	if err := os.Remove(final); err != nil {
		t.Error(err)
	}
	wantEmpty(t, dir)
}

// failingListener accepts nothing.
type failingListener struct{ net.Listener }

var errNoDescriptors = errors.New("too many open files")

func (failingListener) Accept() (net.Conn, error) { return nil, errNoDescriptors }

func TestServerThatCannotAcceptFails(t *testing.T) {
	device := testDevice(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dir := t.TempDir()
	file := randomFile(t, 1)
	if err := serve(t.Context(), failingListener{l}, device, file, filepath.Join(dir, "back")); err != errNoDescriptors {
		t.Errorf("got %v", err)
	}
	wantEmpty(t, dir)
}
