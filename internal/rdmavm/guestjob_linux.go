package rdmavm

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// leftoverGrace is how long processes that outlive the program may go on writing
// to its streams.
const leftoverGrace = 500 * time.Millisecond

// run runs the job and reports its end. It sends the program's pidfd on started
// once, 0 if there is none.
func (g *guest) run(job *jobMessage, started chan<- int) {
	p, err := g.start(job)
	if err != nil {
		started <- 0
		g.exit(&exitMessage{Code: startStatus(err), Err: err.Error()})
		return
	}
	started <- p.pidfd
	x, err := p.wait()
	if err != nil {
		x = &exitMessage{Code: ExitFailure, Err: err.Error()}
	}
	unix.Sync() // what went to the shares is on the host before the launcher hears of it
	g.exit(x)
}

func startStatus(err error) int {
	switch {
	case errors.Is(err, errPrepare):
		return ExitFailure
	case errors.Is(err, os.ErrNotExist):
		return ExitNotFound
	}
	return ExitNotRunnable
}

func (g *guest) exit(x *exitMessage) {
	if err := errors.Join(g.reportKernelLog(), g.out.sendMessage(frameExit, x)); err != nil {
		fmt.Fprintln(os.Stderr, "rdmavm: exit:", err)
	}
}

// errPrepare: the guest, not the program, is why it did not start.
var errPrepare = errors.New("preparing the guest")

// A process is the running program.
type process struct {
	pid     int
	pidfd   int            // tells it from a later process, whose pid may be the same
	streams sync.WaitGroup // stdout and stderr
}

func (g *guest) start(job *jobMessage) (*process, error) {
	if err := errors.Join(setClock(job.Time), seedRandom(job.Seed), makeRoot(job), setLimits()); err != nil {
		return nil, fmt.Errorf("%w: %w", errPrepare, err)
	}
	var there, here [3]*os.File
	for i := range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errPrepare, err)
		}
		there[i], here[i] = w, r
		if i == 0 {
			there[i], here[i] = r, w
		}
		defer there[i].Close()
	}
	if err := g.out.send(frameStarted, nil); err != nil {
		return nil, fmt.Errorf("%w: %w", errPrepare, err)
	}
	var p process
	pid, err := syscall.ForkExec(job.Argv[0], job.Argv, &syscall.ProcAttr{
		Dir: job.Dir, Env: job.Env,
		Files: []uintptr{there[0].Fd(), there[1].Fd(), there[2].Fd()},
		Sys:   &syscall.SysProcAttr{Chroot: guestRoot, Setsid: true, PidFD: &p.pidfd},
	})
	if err != nil {
		return nil, fmt.Errorf("start %s in %s: %w", job.Argv[0], job.Dir, err)
	}
	p.pid = pid
	go g.feed(here[0])
	p.streams.Go(func() { g.forward(here[1], frameStdout) })
	p.streams.Go(func() { g.forward(here[2], frameStderr) })
	return &p, nil
}

// feed asks for stdin piece by piece, so that a program which does not read its
// stdin holds up nothing else.
func (g *guest) feed(w *os.File) {
	defer w.Close()
	for {
		if err := g.out.send(frameWant, nil); err != nil {
			return
		}
		data := <-g.stdin
		if len(data) == 0 {
			return
		}
		if _, err := w.Write(data); err != nil {
			return // the program reads no more
		}
	}
}

func (g *guest) forward(r *os.File, kind frameKind) {
	defer r.Close()
	buf := make([]byte, chunk)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if err := g.out.send(kind, buf[:n]); err != nil {
				return // the launcher is gone, and soon the guest is
			}
		}
		if err != nil {
			if err != io.EOF {
				fmt.Fprintln(os.Stderr, "rdmavm: stream:", err)
			}
			return
		}
	}
}

// wait waits for the program, reaping whatever else ends, as an init must, and
// for the end of its output.
func (p *process) wait() (*exitMessage, error) {
	var status unix.WaitStatus
	for {
		pid, err := unix.Wait4(-1, &status, 0, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("wait: %w", err)
		}
		if pid == p.pid {
			break
		}
	}
	// What the program left behind may hold its streams open. It ends with the
	// guest anyway.
	leftovers := time.AfterFunc(leftoverGrace, func() { _ = unix.Kill(-1, unix.SIGKILL) })
	p.streams.Wait()
	leftovers.Stop()
	_ = unix.Kill(-1, unix.SIGKILL) // fails if there is none
	x := &exitMessage{Code: status.ExitStatus()}
	if status.Signaled() {
		x.Signal = int(status.Signal())
		x.Code = 128 + x.Signal
	}
	return x, nil
}

func setLimits() error {
	return errors.Join(
		unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}),
		unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1024, Max: 1 << 19}),
		unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}),
	)
}

// setClock sets the guest's clock, which stands still in a saved state.
func setClock(ns int64) error {
	tv := unix.NsecToTimeval(ns)
	if err := unix.Settimeofday(&tv); err != nil {
		return fmt.Errorf("set the clock: %w", err)
	}
	return nil
}

// seedRandom reseeds the guest's random numbers: without that, guests restored
// from one state would all draw the same.
func seedRandom(seed []byte) error {
	const size = 32
	pool := struct { // struct rand_pool_info
		entropyCount, bufSize int32
		buf                   [size]byte
	}{entropyCount: size * 8, bufSize: size}
	if copy(pool.buf[:], seed) != size {
		return fmt.Errorf("seed of %d bytes, want %d", len(seed), size)
	}
	f, err := os.OpenFile("/dev/urandom", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.RNDADDENTROPY, uintptr(unsafe.Pointer(&pool))); errno != 0 {
		return fmt.Errorf("RNDADDENTROPY: %w", errno)
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.RNDRESEEDCRNG, 0); errno != 0 {
		return fmt.Errorf("RNDRESEEDCRNG: %w", errno)
	}
	return nil
}
