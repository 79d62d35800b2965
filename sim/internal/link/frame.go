package link

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"

	"github.com/goverbs/goverbs/sim/internal/fabric"
)

// A frame is a message on a socket: a prefix, the header and the payload.
// Everything is little-endian.
type prefix struct {
	Magic   uint32
	Version uint32
	Payload uint64
}

const (
	magic   = 0x6d697367 // "gsim"
	version = 4

	maxPayload = 1 << 30
)

var (
	prefixSize = binary.Size(prefix{})
	headerSize = binary.Size(fabric.Header{})
)

// size is how long a message's frame is.
func size(m *fabric.Message) int { return prefixSize + headerSize + len(m.Payload) }

// appendFrame appends a message without its payload.
func appendFrame(b []byte, m *fabric.Message) ([]byte, error) {
	b, err := binary.Append(b, binary.LittleEndian, prefix{magic, version, uint64(len(m.Payload))})
	if err != nil {
		return nil, err
	}
	return binary.Append(b, binary.LittleEndian, &m.Header)
}

// writeFrame sends a message but for the first bytes, as many as were sent
// before.
func writeFrame(conn net.Conn, m *fabric.Message, sent int) error {
	head, err := appendFrame(nil, m)
	if err != nil {
		return err
	}
	bufs := net.Buffers{head[min(sent, len(head)):], m.Payload[max(sent-len(head), 0):]}
	_, err = bufs.WriteTo(conn)
	return err
}

// readFrame reads a message. At the end of the stream the error is io.EOF.
func readFrame(r io.Reader) (*fabric.Message, error) {
	buf := make([]byte, prefixSize+headerSize)
	if _, err := io.ReadFull(r, buf); err != nil {
		return nil, err
	}
	var p prefix
	if _, err := binary.Decode(buf, binary.LittleEndian, &p); err != nil {
		return nil, err
	}
	if p.Magic != magic || p.Version != version {
		return nil, fmt.Errorf("sim: a process speaks another version (%#x %d) than this one (%#x %d)", p.Magic, p.Version, magic, version)
	}
	m := new(fabric.Message)
	if _, err := binary.Decode(buf[prefixSize:], binary.LittleEndian, &m.Header); err != nil {
		return nil, err
	}
	err := check(m, p.Payload)
	if err != nil {
		return nil, err
	}
	m.Payload, err = readPayload(r, int(p.Payload))
	return m, err
}

// readPayload reads n bytes. It takes memory as they come, not on a promise.
func readPayload(r io.Reader, n int) ([]byte, error) {
	const step = 1 << 20
	b := make([]byte, 0, min(n, step))
	for len(b) < n {
		k := min(n-len(b), step)
		b = slices.Grow(b, k)
		if _, err := io.ReadFull(r, b[len(b):len(b)+k]); err != nil {
			return nil, fmt.Errorf("sim: a message ends early: %w", err)
		}
		b = b[:len(b)+k]
	}
	return b, nil
}

// check refuses a message whose sizes disagree.
func check(m *fabric.Message, payload uint64) error {
	want := uint64(0)
	if !m.IsAnswer && (m.Op == fabric.OpSend || m.Op == fabric.OpWrite) {
		want = m.Length
	}
	switch {
	case payload > maxPayload || m.Length > maxPayload:
		return fmt.Errorf("sim: a message of %d and %d bytes, the limit is %d", payload, m.Length, maxPayload)
	case !m.IsAnswer && payload != want:
		return fmt.Errorf("sim: a message of %d bytes for a request of %d", payload, want)
	case !m.Valid():
		return fmt.Errorf("sim: a message with values that have no meaning")
	}
	return nil
}
