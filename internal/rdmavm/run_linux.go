package rdmavm

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/hostdevice"
)

// Run runs the program argv[0] with the arguments argv[1:], this process's
// streams, folder and environment, where real kernel verbs are, and returns its
// exit status: 128 + the signal's number if a signal ended it. On the host it
// takes this process's place and does not return. In a guest the program runs as
// root, RDMAVM_GUEST=1 is set, and RDMA_TEST_REQUIRE=1 unless it is set otherwise.
//
// An error says why the status is one of the launcher's own (ExitFailure and the
// others), or what the launcher noticed beside the program's status.
func Run(o Options, argv []string) (status int, err error) {
	if err := o.validate(); err != nil {
		return ExitFailure, err
	}
	if len(argv) == 0 {
		return ExitFailure, errors.New("no program given")
	}
	program, err := exec.LookPath(argv[0])
	if err == nil {
		program, err = filepath.Abs(program)
	}
	switch {
	case errors.Is(err, os.ErrPermission):
		return ExitNotRunnable, err
	case err != nil:
		return ExitNotFound, err
	}
	if o.Mode == ModeHost || o.Mode == ModeAuto && hostIsUsable(&o) {
		return ExitNotRunnable, fmt.Errorf("%s: %w", program, unix.Exec(program, argv, os.Environ()))
	}
	if runtime.GOARCH != "amd64" {
		return ExitFailure, fmt.Errorf("no usable RDMA device, and no guest for %s hosts: only amd64 has one", runtime.GOARCH)
	}
	l, err := newLaunch(o, program, argv)
	if err != nil {
		return ExitFailure, err
	}
	defer l.cleanUp()
	return l.run()
}

func hostIsUsable(o *Options) bool {
	usable, reasons := hostdevice.Usable()
	for _, r := range reasons {
		o.logf("not usable: %s", r)
	}
	if len(usable) > 0 {
		o.logf("running on this host, which has %s", strings.Join(usable, ", "))
	}
	return len(usable) > 0
}

// A launch is one program to run in a guest.
type launch struct {
	options Options
	cache   *cache
	qemu    string
	kernel  kernel
	initrd  string
	job     jobMessage
	made    []string // folders that were made for the program, to be removed if it left them empty
}

func newLaunch(o Options, program string, argv []string) (*launch, error) {
	l := &launch{options: o}
	var err error
	if l.cache, err = openCache(l.options.logf); err != nil {
		return nil, err
	}
	if err := needTools("the virtual machine", qemuTool); err != nil {
		if o.Mode == ModeAuto {
			err = fmt.Errorf("this host has no usable RDMA device, and %w", err)
		}
		return nil, err
	}
	if l.qemu, err = exec.LookPath(qemuTool.name); err != nil {
		return nil, err
	}
	cwd, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	if cwd, err = filepath.EvalSymlinks(cwd); err != nil {
		return nil, err
	}
	if l.kernel, err = l.cache.kernel(&l.options); err != nil {
		return nil, err
	}
	if l.initrd, err = l.cache.initrd(l.kernel); err != nil {
		return nil, err
	}
	shares, err := l.shares(argv[1:], cwd)
	if err != nil {
		return nil, err
	}
	env := append(os.Environ(), "RDMAVM_GUEST=1")
	if os.Getenv("RDMA_TEST_REQUIRE") == "" {
		env = append(env, "RDMA_TEST_REQUIRE=1")
	}
	l.job = jobMessage{
		Argv: append([]string{program}, argv[1:]...), Env: env, Dir: cwd, Shares: shares,
	}
	return l, nil
}

// shares returns the folders that this program may write.
func (l *launch) shares(args []string, cwd string) ([]share, error) {
	folders, create := testFolders(args, cwd)
	folders = append(folders, os.Getenv("GOCOVERDIR"))
	for _, dir := range create {
		if _, err := os.Stat(dir); err == nil {
			folders = append(folders, dir)
			continue
		}
		made, err := makeAll(dir)
		if err != nil {
			return nil, err
		}
		l.made = append(l.made, made...)
		folders = append(folders, dir)
	}
	// One that does not exist is the program's to report.
	folders = slices.DeleteFunc(folders, func(dir string) bool {
		info, err := os.Stat(dir)
		return err != nil || !info.IsDir()
	})
	return makeShares(append(folders, l.options.Writable...))
}

// makeAll is os.MkdirAll that returns the folders it made, the deepest last.
func makeAll(dir string) (made []string, err error) {
	if _, err := os.Stat(dir); err == nil {
		return nil, nil
	}
	if made, err = makeAll(filepath.Dir(dir)); err != nil {
		return made, err
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return made, err
	}
	return append(made, dir), nil
}

func (l *launch) cleanUp() {
	for _, dir := range slices.Backward(l.made) {
		_ = os.Remove(dir) // stays if there is something in it
	}
}

// run tries one accelerator after the other; the program runs in the first guest
// that starts.
func (l *launch) run() (status int, err error) {
	accels := l.cache.accelerators(l.options.Mode)
	for i, accel := range accels {
		last := i == len(accels)-1
		status, err = l.runWith(accel, last)
		if last || !errors.Is(err, errNoGuest) {
			break
		}
		l.options.logf("KVM does not work here, emulating: %v", err)
		if err := l.cache.judgeKVM(false); err != nil {
			l.options.logf("not remembered: %v", err)
		}
	}
	return status, err
}

func (l *launch) runWith(accel accelerator, last bool) (int, error) {
	config := &machineConfig{
		accel: accel, cpus: l.options.CPUs, memory: l.options.MemoryMiB,
		kernel: l.kernel.image(), initrd: l.initrd, shares: l.job.Shares, empty: l.cache.path("empty"),
	}
	state := ""
	if accel == tcg && !l.options.Cold { // an emulated CPU is the same everywhere
		var err error
		if state, err = config.stateName(l.qemu); err != nil {
			return ExitFailure, err
		}
		status, err := l.restore(config, state)
		switch {
		case !errors.Is(err, errNoGuest):
			return status, err
		case !errors.Is(err, os.ErrNotExist):
			l.options.logf("starting afresh: %v", err)
			if err := os.Remove(l.cache.path(state)); err != nil {
				l.options.logf("the saved state stays: %v", err)
			}
		}
	}
	s, err := newSession(l, config)
	if err != nil {
		return ExitFailure, err
	}
	s.state = state
	if !last {
		s.hurry, s.sign = kvmBootTimeout, kvmSignTimeout
	}
	return s.run()
}

// restoreTimeout is far more than a restored guest takes to start the program,
// and less than it pays to wait for one that does not.
const restoreTimeout = 30 * time.Second

// restore runs the program in a saved guest. The error is errNoGuest if that did
// not start it.
func (l *launch) restore(config *machineConfig, state string) (int, error) {
	if !l.cache.has(state) {
		return 0, fmt.Errorf("%w: %w", errNoGuest, os.ErrNotExist)
	}
	saved, err := os.Open(l.cache.path(state))
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errNoGuest, err)
	}
	defer saved.Close()
	if info, err := saved.Stat(); err != nil || info.Size() == 0 {
		return 0, fmt.Errorf("%w: its saved state is empty (%v)", errNoGuest, err) // QEMU would wait for ever
	}
	// By a pipe: QEMU versions differ in whether they take a file.
	r, w, err := os.Pipe()
	if err != nil {
		return ExitFailure, err
	}
	defer r.Close()
	go func() {
		defer w.Close()
		_, _ = io.Copy(w, saved) // cut short if QEMU ends, which is noticed elsewhere
	}()
	with := *config
	with.restore = r
	s, err := newSession(l, &with)
	if err != nil {
		return ExitFailure, err
	}
	s.hurry = restoreTimeout
	return s.run()
}
