package rdmavm

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// A kmsgReader reads the kernel's log from the beginning.
type kmsgReader struct {
	mu sync.Mutex
	fd int
}

func openKmsg() (*kmsgReader, error) {
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/kmsg: %w", err)
	}
	return &kmsgReader{fd: fd}, nil
}

// drain hands over every line of level warning or worse that is there by now.
func (k *kmsgReader) drain(report func(line string) error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	buf := make([]byte, 8192) // a record is shorter
	for {
		n, err := unix.Read(k.fd, buf)
		switch err {
		case nil:
			if level, text, ok := parseKmsg(string(buf[:n])); ok && level <= kmsgWarning {
				if err := report(text); err != nil {
					return err
				}
			}
		case unix.EAGAIN:
			return nil
		case unix.EPIPE: // records were overwritten before we came: the next read goes on
			if err := report("(kernel messages were lost)"); err != nil {
				return err
			}
		case unix.EINTR:
		default:
			return fmt.Errorf("read /dev/kmsg: %w", err)
		}
	}
}
