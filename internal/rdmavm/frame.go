package rdmavm

import (
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"fmt"
	"io"
	"sync"
)

// A frame is one message on the virtio-serial port: its kind, the length of its
// data as four little-endian bytes, and the data.
type frame struct {
	kind frameKind
	data []byte
}

type frameKind byte

const (
	frameReady   frameKind = 'R' // guest: booted, devices made (readyMessage)
	frameJob     frameKind = 'J' // host: what to run (jobMessage)
	frameStarted frameKind = 'G' // guest: the program is about to start
	frameStdout  frameKind = 'O' // guest: bytes of the program's stdout
	frameStderr  frameKind = 'E' // guest: bytes of the program's stderr
	frameWant    frameKind = 'W' // guest: send the next piece of stdin
	frameStdin   frameKind = 'I' // host: that piece; no data means end of file
	frameSignal  frameKind = 'S' // host: one byte, the signal's number
	frameBeat    frameKind = 'H' // guest: alive, once a second
	frameLog     frameKind = 'L' // guest: a kernel log line of level warning or worse
	frameExit    frameKind = 'X' // guest: how the program ended (exitMessage); the last frame
)

const (
	frameHeader = 5
	maxFrame    = 16 << 20 // a job carries arguments and environment, at most a few MB
	chunk       = 32 << 10 // of a stream, per frame
)

func readFrame(r io.Reader) (frame, error) {
	var header [frameHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return frame{}, err
	}
	n := binary.LittleEndian.Uint32(header[1:])
	if n > maxFrame {
		return frame{}, fmt.Errorf("frame %q of %d bytes, limit %d", header[0], n, maxFrame)
	}
	data := make([]byte, n)
	if _, err := io.ReadFull(r, data); err != nil {
		return frame{}, fmt.Errorf("frame %q cut short: %w", header[0], io.ErrUnexpectedEOF)
	}
	return frame{frameKind(header[0]), data}, nil
}

// A frameWriter sends frames; its methods may be called concurrently.
type frameWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (w *frameWriter) send(kind frameKind, data []byte) error {
	if len(data) > maxFrame {
		return fmt.Errorf("frame %q of %d bytes, limit %d", byte(kind), len(data), maxFrame)
	}
	b := make([]byte, frameHeader, frameHeader+len(data))
	b[0] = byte(kind)
	binary.LittleEndian.PutUint32(b[1:], uint32(len(data)))
	b = append(b, data...)
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := w.w.Write(b)
	return err
}

func (w *frameWriter) sendMessage(kind frameKind, message any) error {
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(message); err != nil {
		return err
	}
	return w.send(kind, b.Bytes())
}

// decode reads the message that sendMessage put into the frame. Messages are gob,
// not JSON: arguments and environment are bytes, which need not be UTF-8.
func (f frame) decode(message any) error {
	if err := gob.NewDecoder(bytes.NewReader(f.data)).Decode(message); err != nil {
		return fmt.Errorf("frame %q: %w", byte(f.kind), err)
	}
	return nil
}

type readyMessage struct {
	Kernel  string
	Devices []string
	Uptime  string
}

type jobMessage struct {
	Argv   []string // Argv[0] is an absolute path
	Env    []string
	Dir    string
	Shares []share
	Time   int64  // the host's clock in ns: that of a restored guest stands still
	Seed   []byte // fresh randomness, for the same reason
}

type exitMessage struct {
	Code   int    // as a shell reports it: 128 + the signal's number if a signal ended it
	Signal int    // 0 if it ended by itself
	Err    string // why it could not be started, if it could not
}
