//go:build linux

package foreign

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// library returns the shared library with the emulated devices. Who names it has
// the programs too.
func library(t *testing.T) string {
	t.Helper()
	path := os.Getenv("RDMA_TEST_PRELOAD")
	if path == "" {
		rdmatest.Skip(t, "needs programs that are not written in Go (make test-foreign)")
	}
	return path
}

// limit is how long a program may take on the slowest machine.
const limit = time.Minute

// program is one that runs.
type program struct {
	cmd  *exec.Cmd
	stop func()
	out  bytes.Buffer  // both streams
	done chan struct{} // closed at its end
	err  error         // how it ended
}

// start runs a program with emulated devices. The test's end is the program's,
// and that of what it started.
func start(t *testing.T, limit time.Duration, dir, name string, args ...string) *program {
	t.Helper()
	lib := library(t)
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%v (make test-foreign installs it)", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	p := &program{cmd: exec.CommandContext(ctx, path, args...), stop: cancel, done: make(chan struct{})}
	p.cmd.Dir = dir
	p.cmd.Env = append(os.Environ(), "LD_PRELOAD="+lib, "LC_ALL=C.UTF-8", "PYTHONDONTWRITEBYTECODE=1")
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.Cancel = func() error { return syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) }
	p.cmd.WaitDelay = 10 * time.Second
	if err := p.cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		p.err = p.cmd.Wait()
		if ctx.Err() != nil {
			p.err = fmt.Errorf("%w: %w", ctx.Err(), p.err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-p.done
	})
	return p
}

// wait returns what the program printed and how it ended.
func (p *program) wait() (out string, err error) {
	<-p.done
	return p.out.String(), p.err
}

func (p *program) String() string { return strings.Join(p.cmd.Args, " ") }

// freePort returns a TCP port that nobody listens on.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// listens waits until a program listens on a port. To try to connect would
// take the place of the client.
func (p *program) listens(port int) bool {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
			if b, err := os.ReadFile(table); err == nil && isListening(string(b), port) {
				return true
			}
		}
		select {
		case <-p.done:
			return false
		case <-tick.C:
		}
	}
}

// isListening reports whether a table of sockets as in proc_net_tcp(5) has a
// listener on that port.
func isListening(table string, port int) bool {
	const stateListen = "0A"
	local := fmt.Sprintf(":%04X", port)
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) > 3 && strings.HasSuffix(f[1], local) && f[3] == stateListen {
			return true
		}
	}
	return false
}
