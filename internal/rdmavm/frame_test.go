package rdmavm

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFramesArriveAsSent(t *testing.T) {
	var wire bytes.Buffer
	w := &frameWriter{w: &wire}
	sent := []frame{
		{frameBeat, []byte{}},
		{frameStdout, []byte("a\x00b\xff")},
		{frameStdin, bytes.Repeat([]byte{7}, chunk)},
	}
	for _, f := range sent {
		if err := w.send(f.kind, f.data); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range sent {
		got, err := readFrame(&wire)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(frame{})); diff != "" {
			t.Errorf("frame (-want +got):\n%s", diff)
		}
	}
	if _, err := readFrame(&wire); err != io.EOF {
		t.Errorf("after the last frame: %v, want io.EOF", err)
	}
}

func TestFramesOfSeveralWritersDoNotMix(t *testing.T) {
	r, pipe := io.Pipe()
	w := &frameWriter{w: pipe}
	const writers, each = 4, 50
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			for range each {
				if err := w.send(frameStdout, bytes.Repeat([]byte{byte(i)}, 100+i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range writers * each {
		f, err := readFrame(r)
		if err != nil {
			t.Fatal(err)
		}
		if i := f.data[0]; !bytes.Equal(f.data, bytes.Repeat([]byte{i}, 100+int(i))) {
			t.Fatalf("frame of writer %d has %d bytes, or others' bytes", i, len(f.data))
		}
	}
	wg.Wait()
}

func TestFrameCutShortOrTooLong(t *testing.T) {
	var wire bytes.Buffer
	if err := (&frameWriter{w: &wire}).send(frameStdout, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	for n := 1; n < wire.Len(); n++ {
		if _, err := readFrame(bytes.NewReader(wire.Bytes()[:n])); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d bytes of %d: %v, want io.ErrUnexpectedEOF", n, wire.Len(), err)
		}
	}
	if _, err := readFrame(strings.NewReader("O\xff\xff\xff\xff")); err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("frame of 4 GiB: %v, want an error that names the limit", err)
	}
	if err := (&frameWriter{w: &wire}).send(frameStdout, make([]byte, maxFrame+1)); err == nil {
		t.Error("a frame over the limit was sent")
	}
}

func TestJobKeepsBytes(t *testing.T) {
	want := jobMessage{
		Argv: []string{"/bin/x", "", "\xff\xfe", "a b"}, Env: []string{"A=\xc3\x28", "EMPTY="},
		Dir: "/d", Shares: []share{{"rw0", "/s,\xff"}}, Time: 12345, Seed: []byte{0, 1},
	}
	var wire bytes.Buffer
	if err := (&frameWriter{w: &wire}).sendMessage(frameJob, &want); err != nil {
		t.Fatal(err)
	}
	f, err := readFrame(&wire)
	if err != nil {
		t.Fatal(err)
	}
	var got jobMessage
	if err := f.decode(&got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("job (-want +got):\n%s", diff)
	}
	if err := (frame{frameJob, []byte("no gob")}).decode(&got); err == nil {
		t.Error("a damaged message was decoded")
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add([]byte("H\x00\x00\x00\x00"))
	f.Add([]byte("O\x03\x00\x00\x00abcX"))
	f.Add([]byte("X\xff\xff\xff\x7f"))
	f.Fuzz(func(t *testing.T, wire []byte) {
		r := bytes.NewReader(wire)
		got, err := readFrame(r)
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := (&frameWriter{w: &again}).send(got.kind, got.data); err != nil {
			t.Fatal(err)
		}
		if read := wire[:len(wire)-r.Len()]; !bytes.Equal(read, again.Bytes()) {
			t.Errorf("read %x, which is sent as %x", read, again.Bytes())
		}
	})
}
