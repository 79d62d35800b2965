package rdmavm

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// monitorTimeout is how long an answer may take, which is more than saveTimeout:
	// QEMU does not answer while it writes the last of a guest.
	monitorTimeout = 30 * time.Second

	// saveTimeout is how long a guest may take to be saved, which is then given up:
	// it would only make later runs faster.
	saveTimeout = 20 * time.Second
)

// A monitor speaks QEMU's QMP.
type monitor struct {
	f   *os.File
	dec *json.Decoder
}

func openMonitor(f *os.File) (*monitor, error) {
	m := &monitor{f, json.NewDecoder(f)}
	if err := m.hurry(); err != nil {
		return nil, err
	}
	var greeting struct{ QMP json.RawMessage }
	if err := m.dec.Decode(&greeting); err != nil {
		return nil, fmt.Errorf("qemu monitor: %w", err)
	}
	return m, m.do("qmp_capabilities", nil, nil)
}

// hurry begins the time for the next answer.
func (m *monitor) hurry() error { return m.f.SetDeadline(time.Now().Add(monitorTimeout)) }

// do runs a command. result may be nil; events in between are passed over.
func (m *monitor) do(command string, arguments map[string]any, result any, fds ...int) error {
	request := map[string]any{"execute": command}
	if arguments != nil {
		request["arguments"] = arguments
	}
	b, err := json.Marshal(request)
	if err != nil {
		return err
	}
	if err := errors.Join(m.hurry(), m.send(append(b, '\n'), fds)); err != nil {
		return fmt.Errorf("qemu monitor: %s: %w", command, err)
	}
	for {
		var reply struct {
			Return json.RawMessage
			Error  *struct{ Desc string }
		}
		if err := m.dec.Decode(&reply); err != nil {
			return fmt.Errorf("qemu monitor: %s: %w", command, err)
		}
		switch {
		case reply.Error != nil:
			return fmt.Errorf("qemu monitor: %s: %s", command, reply.Error.Desc)
		case reply.Return != nil:
			if result == nil {
				return nil
			}
			return json.Unmarshal(reply.Return, result)
		}
	}
}

// send writes a request, and file descriptors with its first byte.
func (m *monitor) send(request []byte, fds []int) error {
	if len(fds) > 0 {
		raw, err := m.f.SyscallConn()
		if err != nil {
			return err
		}
		var sendErr error
		err = raw.Write(func(fd uintptr) bool {
			sendErr = unix.Sendmsg(int(fd), request[:1], unix.UnixRights(fds...), nil, 0)
			return sendErr != unix.EAGAIN
		})
		if err = errors.Join(err, sendErr); err != nil {
			return err
		}
		request = request[1:]
	}
	_, err := m.f.Write(request)
	return err
}

// saveState writes the state of the guest to w and lets the guest go on, which
// it does even if it could not be saved, unless the error is errStopped.
func (m *machine) saveState(w io.Writer) error { return saveState(m.monitor, w, saveTimeout) }

func saveState(f *os.File, w io.Writer, timeout time.Duration) error {
	qmp, err := openMonitor(f)
	if err != nil {
		return fmt.Errorf("%w: %w", errStopped, err)
	}
	saveErr := qmp.save(w, timeout)
	if err := qmp.do("cont", nil, nil); err != nil { // a guest that has been saved stands still
		return fmt.Errorf("%w: %w", errStopped, errors.Join(saveErr, err))
	}
	return saveErr
}

var errStopped = errors.New("the virtual machine stands still")

func (m *monitor) save(w io.Writer, timeout time.Duration) error {
	r, pipe, err := os.Pipe()
	if err != nil {
		return err
	}
	// Not pipe.Fd(): that would make our end a blocking one.
	raw, err := pipe.SyscallConn()
	if err != nil {
		return err
	}
	controlErr := raw.Control(func(fd uintptr) {
		err = m.do("getfd", map[string]any{"fdname": "state"}, nil, int(fd))
	})
	pipe.Close() // QEMU has its own
	if err = errors.Join(controlErr, err); err != nil {
		r.Close()
		return err
	}
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(w, r)
		r.Close() // after an error it stops QEMU's writing
		copied <- err
	}()
	giveUp := time.AfterFunc(timeout, func() { r.Close() })
	migrateErr := m.migrate()
	if !giveUp.Stop() {
		migrateErr = errors.Join(fmt.Errorf("not done within %v: %w", timeout, os.ErrDeadlineExceeded), migrateErr)
	}
	if migrateErr != nil {
		r.Close()
	}
	return errors.Join(migrateErr, <-copied)
}

// migrate returns once QEMU has written the guest, or failed to.
func (m *monitor) migrate() error {
	if err := m.do("migrate-set-parameters", map[string]any{"max-bandwidth": 100e9}, nil); err != nil {
		return err
	}
	if err := m.do("migrate", map[string]any{"uri": "fd:state"}, nil); err != nil {
		return err
	}
	for {
		var info struct {
			Status    string
			ErrorDesc string `json:"error-desc"`
		}
		if err := m.do("query-migrate", nil, &info); err != nil {
			return err
		}
		switch info.Status {
		case "completed":
			return nil
		case "failed", "cancelled":
			return fmt.Errorf("qemu monitor: migrate: %s %s", info.Status, info.ErrorDesc)
		}
		time.Sleep(10 * time.Millisecond) // bounded by the pipe that it writes to
	}
}
