package rdmavm

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// errNoGuest: the guest did not come up, so the program has not run.
var errNoGuest = errors.New("the virtual machine did not start")

// errOutput: the program's output cannot be passed on.
var errOutput = errors.New("the program's output is lost")

// A session is one guest, from its start to its end.
type session struct {
	launch  *launch
	config  *machineConfig
	machine *machine
	out     *frameWriter
	frames  chan frame // what the guest sends, streams excepted; closed when it is gone
	readErr error      // why; valid when frames is closed
	begun   time.Time
	state   string // the cache entry to save the guest to, once it is ready; "" for none

	// There is another way to try after this one, so the guest has to be ready
	// in hurry, and have printed something in sign; 0: no hurry.
	hurry, sign time.Duration

	started bool // the program has been started, or may have been
	log     []string
	signals int
}

func newSession(l *launch, config *machineConfig) (*session, error) {
	m, err := startMachine(l.qemu, config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", l.qemu, err)
	}
	return &session{
		launch: l, config: config, machine: m, out: &frameWriter{w: m.port},
		frames: make(chan frame), begun: time.Now(),
	}, nil
}

func (s *session) elapsed() string { return fmt.Sprintf("%.2fs", time.Since(s.begun).Seconds()) }

func (s *session) run() (status int, err error) {
	defer s.machine.stop()
	signals := make(chan os.Signal, 8)
	defer signal.Stop(signals)
	for _, sig := range []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGQUIT, unix.SIGHUP, unix.SIGUSR1, unix.SIGUSR2} {
		if !signal.Ignored(sig) { // as by nohup
			signal.Notify(signals, sig)
		}
	}

	o := &s.launch.options
	boot := o.BootTimeout
	if s.hurry > 0 {
		boot = min(boot, s.hurry)
	}
	var sign <-chan time.Time
	if s.sign > 0 {
		sign = time.After(s.sign)
	}
	bootLimit := time.After(boot)
	var limit <-chan time.Time
	done := make(chan struct{})
	defer close(done)
	go s.read(boot, done)
	if s.config.restore != nil {
		s.begin()
	}
	for {
		select {
		case f, ok := <-s.frames:
			if !ok {
				return s.lost()
			}
			switch f.kind {
			case frameReady:
				if err := s.ready(f); err != nil {
					return ExitFailure, err
				}
				bootLimit = time.After(boot) // what saving took is not the guest's fault
			case frameStarted:
				s.started = true
				bootLimit = nil
				if d := o.timeout(s.launch.job.Argv[1:]); d > 0 {
					limit = time.After(d)
				}
				o.logf("program starts at %s", s.elapsed())
			case frameWant:
				go s.feedStdin()
			case frameLog:
				s.log = append(s.log, string(f.data))
			case frameExit:
				return s.exit(f)
			}
		case sig := <-signals:
			if status, err := s.signal(sig.(unix.Signal)); err != nil {
				return status, err
			}
		case <-sign:
			if len(s.machine.console.bytes()) == 0 {
				return ExitFailure, fmt.Errorf("%w: not a byte on its console in %v", errNoGuest, s.sign)
			}
		case <-bootLimit:
			return ExitFailure, fmt.Errorf("%w within %v%s", errNoGuest, boot, s.machine.log())
		case <-limit:
			return ExitTimeout, fmt.Errorf("the program ran past its limit of %v%s", o.timeout(s.launch.job.Argv[1:]), s.machine.log())
		}
	}
}

// read passes the streams on and hands the other frames to run. The guest has
// to speak while we listen: a reader of our output that takes its time does not
// count against it.
func (s *session) read(boot time.Duration, done <-chan struct{}) {
	defer close(s.frames)
	r := bufio.NewReaderSize(s.machine.port, 2*chunk)
	patience := boot
	for {
		if s.readErr = s.machine.port.SetReadDeadline(time.Now().Add(patience)); s.readErr != nil {
			return
		}
		var f frame
		if f, s.readErr = readFrame(r); s.readErr != nil {
			if errors.Is(s.readErr, os.ErrDeadlineExceeded) {
				s.readErr = fmt.Errorf("silent for %v", patience)
			}
			return
		}
		switch f.kind {
		case frameReady: // and now it may be saved, for which it stands still
			patience = s.launch.options.Stall + saveTimeout
		case frameStarted:
			patience = s.launch.options.Stall
		}
		var stream *os.File
		switch f.kind {
		case frameStdout:
			stream = os.Stdout
		case frameStderr:
			stream = os.Stderr
		case frameBeat:
			continue
		default:
			select {
			case s.frames <- f:
				continue
			case <-done:
				return
			}
		}
		if _, err := stream.Write(f.data); err != nil {
			s.readErr = fmt.Errorf("%w: %w", errOutput, err)
			return
		}
	}
}

// ready goes on from a booted guest: it may be saved, then gets its job.
func (s *session) ready(f frame) error {
	var r readyMessage
	if err := f.decode(&r); err != nil {
		return err
	}
	o := &s.launch.options
	o.logf("%s guest with Linux %s ready at %s (%s by its own clock): %s",
		s.config.accel, r.Kernel, s.elapsed(), r.Uptime, strings.Join(r.Devices, ", "))
	if s.config.accel == kvm {
		if err := s.launch.cache.judgeKVM(true); err != nil {
			o.logf("not remembered: %v", err)
		}
	}
	// A kernel that complained while booting is not worth keeping.
	if s.state != "" && len(complaints(s.log, nil)) == 0 {
		switch err := s.launch.cache.putWith(s.state, s.machine.saveState); {
		case errors.Is(err, errStopped):
			return fmt.Errorf("saving the guest's state: %w (-cold does without)%s", err, s.machine.log())
		case err != nil:
			o.logf("state not saved: %v", err)
		default:
			o.logf("state saved at %s", s.elapsed())
		}
	}
	s.begin()
	return nil
}

// begin hands the guest its job.
func (s *session) begin() {
	job := s.launch.job
	job.Time = time.Now().UnixNano()
	job.Seed = make([]byte, 32)
	_, _ = rand.Read(job.Seed) // never fails
	go s.send(func() error { return s.out.sendMessage(frameJob, &job) })
}

// send runs one that writes to the guest, which may take its time. An error is
// that of a guest which is gone, as the reader notices too.
func (s *session) send(write func() error) { _ = write() }

// feedStdin sends the guest one more piece of our stdin, as it asked for.
func (s *session) feedStdin() {
	b := make([]byte, chunk)
	n, err := os.Stdin.Read(b)
	if err != nil && n == 0 && !errors.Is(err, io.EOF) {
		notef("stdin: %v", err)
	}
	s.send(func() error { return s.out.send(frameStdin, b[:n]) })
}

// signal passes a signal on. The error ends the session.
func (s *session) signal(sig unix.Signal) (int, error) {
	if s.signals++; !s.started || s.signals > 3 {
		return 128 + int(sig), fmt.Errorf("ended by signal: %v", sig)
	}
	go s.send(func() error { return s.out.send(frameSignal, []byte{byte(sig)}) })
	return 0, nil
}

// lost reports a guest that went away before the program ended.
func (s *session) lost() (int, error) {
	s.machine.stop()
	if errors.Is(s.readErr, errOutput) {
		return ExitFailure, s.readErr
	}
	if errors.Is(s.readErr, io.EOF) || errors.Is(s.readErr, unix.ECONNRESET) {
		s.readErr = errors.New("gone")
	}
	if !s.started {
		return ExitFailure, fmt.Errorf("%w: %w%s", errNoGuest, s.readErr, s.machine.log())
	}
	return ExitFailure, fmt.Errorf("the virtual machine failed before the program ended: %w%s%s", s.readErr, s.kernelLog(), s.machine.log())
}

// exit reports how the program ended, if the kernel below it stayed sound.
func (s *session) exit(f frame) (int, error) {
	var x exitMessage
	if err := f.decode(&x); err != nil {
		return ExitFailure, err
	}
	s.launch.options.logf("program ended with %d at %s", x.Code, s.elapsed())
	if x.Err != "" {
		return x.Code, fmt.Errorf("in the guest: %s%s", x.Err, s.machine.log())
	}
	var err error
	if x.Signal != 0 {
		err = fmt.Errorf("the program was ended by signal %d (%v)", x.Signal, unix.Signal(x.Signal))
	}
	if found := complaints(s.log, s.launch.options.Expected); len(found) > 0 {
		if x.Code == 0 {
			x.Code = ExitFailure
		}
		err = errors.Join(err, fmt.Errorf("the guest's kernel complained, which voids the result: %s%s", found[0], s.kernelLog()))
	} else if len(s.log) > 0 {
		s.launch.options.logf("its kernel said:%s", s.kernelLog())
	}
	return x.Code, err
}

// kernelLog is what the kernel said, for an error message.
func (s *session) kernelLog() string {
	if len(s.log) == 0 {
		return ""
	}
	const most = 200
	more := ""
	lines := s.log
	if len(lines) > most {
		more = fmt.Sprintf("\n... and %d lines more", len(lines)-most)
		lines = lines[:most]
	}
	return "\n--- guest kernel ---\n" + strings.Join(lines, "\n") + more
}
