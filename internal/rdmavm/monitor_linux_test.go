package rdmavm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fakeQEMU answers on a monitor's connection as QEMU does. It migrates by write,
// or not at all, and does not answer before that has ended.
type fakeQEMU struct {
	conn     *net.UnixConn
	write    func(pipe io.Writer) error
	hangsUp  string // the command upon which it ends
	state    *os.File
	commands []string
}

// startFakeQEMU returns our end of the monitor. When the connection is closed,
// done gets the commands that came.
func startFakeQEMU(t *testing.T, q *fakeQEMU) (ours *os.File, done <-chan []string) {
	t.Helper()
	ours, there, err := socketPair("monitor")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.FileConn(there)
	if err := errors.Join(err, there.Close()); err != nil {
		t.Fatal(err)
	}
	q.conn = conn.(*net.UnixConn)
	ended := make(chan []string, 1)
	go func() {
		defer q.conn.Close()
		if err := q.serve(); err != nil {
			t.Error(err)
		}
		ended <- q.commands
	}()
	return ours, ended
}

func (q *fakeQEMU) serve() error {
	if _, err := fmt.Fprintln(q.conn, `{"QMP": {}}`); err != nil {
		return err
	}
	var input []byte
	for buf, oob := make([]byte, 4096), make([]byte, unix.CmsgSpace(4)); ; {
		n, oobn, _, _, err := q.conn.ReadMsgUnix(buf, oob)
		if n == 0 || err != nil {
			return nil // closed
		}
		if oobn > 0 {
			if q.state, err = passedFile(oob[:oobn]); err != nil {
				return err
			}
		}
		input = append(input, buf[:n]...)
		for line := range bytes.Lines(slices.Clone(input)) {
			if !bytes.HasSuffix(line, []byte("\n")) {
				break
			}
			input = input[len(line):]
			var request struct{ Execute string }
			if err := json.Unmarshal(line, &request); err != nil {
				return err
			}
			q.commands = append(q.commands, request.Execute)
			if request.Execute == q.hangsUp {
				return nil
			}
			if _, err := fmt.Fprintln(q.conn, `{"event": "SOMETHING"}`+"\n"+q.answer(request.Execute)); err != nil {
				return err
			}
		}
	}
}

func passedFile(oob []byte) (*os.File, error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fds[0]), "state"), nil
}

func (q *fakeQEMU) answer(command string) string {
	switch command {
	case "query-migrate":
		if err := errors.Join(q.write(q.state), q.state.Close()); err != nil {
			return `{"return": {"status": "failed", "error-desc": "could not write"}}`
		}
		return `{"return": {"status": "completed"}}`
	case "migrate":
		if q.write == nil {
			q.state.Close()
			return `{"error": {"desc": "this guest does not migrate"}}`
		}
	}
	return `{"return": {}}`
}

// A guest goes on whether it was saved or not.
func TestGuestGoesOnAfterItIsSaved(t *testing.T) {
	for name, test := range map[string]struct {
		write   func(pipe io.Writer) error
		to      io.Writer
		timeout time.Duration
		want    []string // in the error; none: it is saved
		is      error
	}{
		"saved": {
			write: func(pipe io.Writer) error { _, err := io.WriteString(pipe, "the guest"); return err },
			to:    new(bytes.Buffer), timeout: time.Minute,
		},
		"refused": {to: io.Discard, timeout: time.Minute, want: []string{"this guest does not migrate"}},
		"slow": {
			write: func(pipe io.Writer) error { // until nobody reads any more
				for {
					if _, err := pipe.Write(make([]byte, 1)); err != nil {
						return err
					}
				}
			},
			to: io.Discard, timeout: time.Millisecond, want: []string{"not done within 1ms", "could not write"}, is: os.ErrDeadlineExceeded,
		},
		"full disk": {
			write: func(pipe io.Writer) error { _, err := pipe.Write(make([]byte, 1<<20)); return err },
			to:    fullDisk{}, timeout: time.Minute, want: []string{"could not write"}, is: unix.ENOSPC,
		},
	} {
		t.Run(name, func(t *testing.T) {
			q := &fakeQEMU{write: test.write}
			monitor, done := startFakeQEMU(t, q)
			err := saveState(monitor, test.to, test.timeout)
			if err := monitor.Close(); err != nil {
				t.Error(err)
			}
			if commands := <-done; commands[len(commands)-1] != "cont" {
				t.Errorf("commands %q, the last is not cont", commands)
			}
			if errors.Is(err, errStopped) || (err == nil) != (test.want == nil) || test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("error %v, want %q, %v", err, test.want, test.is)
			}
			for _, text := range test.want {
				if err == nil || !strings.Contains(err.Error(), text) {
					t.Errorf("error %v, want %q", err, text)
				}
			}
			if b, ok := test.to.(*bytes.Buffer); ok && b.String() != "the guest" {
				t.Errorf("saved %q", b)
			}
		})
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, unix.ENOSPC }

// A guest that may not go on is told as such.
func TestGuestThatStandsStill(t *testing.T) {
	for _, command := range []string{"qmp_capabilities", "getfd", "migrate", "query-migrate", "cont"} {
		monitor, done := startFakeQEMU(t, &fakeQEMU{hangsUp: command, write: func(io.Writer) error { return nil }})
		if err := saveState(monitor, io.Discard, time.Minute); !errors.Is(err, errStopped) {
			t.Errorf("it ends at %s: %v, want %v", command, err, errStopped)
		}
		if err := monitor.Close(); err != nil {
			t.Error(err)
		}
		<-done
	}
}
