package rdmavm

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/hostdevice"
)

// IsInit tells if this process is the guest's init.
func IsInit() bool { return os.Getpid() == 1 && os.Getenv(initVariable) == "1" }

// Init is the guest's init: it prepares the guest, runs the program that the
// launcher names, and reports. It does not return; if it fails, the kernel panics
// for want of an init, which ends the guest with the reason on its console.
func Init() {
	err := runInit()
	fmt.Fprintln(os.Stderr, "rdmavm: init:", err)
	os.Exit(1)
}

func runInit() error {
	for _, m := range []mountPoint{
		{"proc", "/proc", "proc", 0, ""},
		{"sysfs", "/sys", "sysfs", 0, ""},
		{"devtmpfs", "/dev", "devtmpfs", 0, ""},
	} {
		if err := m.mount(); err != nil {
			return err
		}
	}
	if err := unix.Sethostname([]byte("rdmavm")); err != nil {
		return fmt.Errorf("host name: %w", err)
	}
	if err := loadModules("/modules"); err != nil {
		return err
	}
	port, err := openPort()
	if err != nil {
		return err
	}
	if err := setUpNetwork(); err != nil {
		return fmt.Errorf("network: %w", err)
	}
	g := &guest{out: &frameWriter{w: port}, stdin: make(chan []byte, 1)}
	if g.kmsg, err = openKmsg(); err != nil {
		return err
	}
	devices, reasons := hostdevice.Usable()
	if len(devices) != 2 {
		return fmt.Errorf("RDMA devices %v are usable, want two: %s", devices, strings.Join(reasons, "; "))
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return err
	}
	uptime, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return err
	}
	seconds, _, _ := strings.Cut(string(uptime), " ")
	if err := g.reportKernelLog(); err != nil {
		return err
	}
	err = g.out.sendMessage(frameReady, &readyMessage{
		Kernel: unix.ByteSliceToString(name.Release[:]), Devices: devices, Uptime: seconds + "s",
	})
	if err != nil {
		return err
	}
	go g.beat()
	return g.serve(bufio.NewReader(port))
}

// loadModules loads the folder's modules in the order of their names.
func loadModules(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.ko"))
	if err != nil {
		return err
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := unix.InitModule(data, ""); err != nil && err != unix.EEXIST {
			return fmt.Errorf("module %s: %w", filepath.Base(file), err)
		}
	}
	return nil
}

// openPort opens the virtio-serial port to the launcher. It is a blocking file:
// such ports poll badly.
func openPort() (port *os.File, err error) {
	err = waitFor("the port to the launcher", func() (bool, error) {
		names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
		for _, path := range names {
			name, err := os.ReadFile(path)
			if err != nil || strings.TrimSpace(string(name)) != portName {
				continue
			}
			device := "/dev/" + filepath.Base(filepath.Dir(path))
			fd, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC, 0)
			if err != nil {
				return false, fmt.Errorf("open %s: %w", device, err)
			}
			port = os.NewFile(uintptr(fd), device)
			return true, nil
		}
		return false, err
	})
	return port, err
}

// waitFor polls until there is something that the kernel does in the background.
func waitFor(what string, there func() (bool, error)) error {
	const limit = 10 * time.Second
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok, err := there(); ok || err != nil {
			return err
		}
	}
	return fmt.Errorf("waited %v for %s: %w", limit, what, unix.ETIMEDOUT)
}

// A guest serves one job.
type guest struct {
	out   *frameWriter
	kmsg  *kmsgReader
	stdin chan []byte // what the launcher sends when it is asked for more
	pidfd int         // of the program, once there is one; 0 before
}

// serve acts on the launcher's frames until the launcher ends QEMU.
func (g *guest) serve(r *bufio.Reader) error {
	started := make(chan int)
	for {
		f, err := readFrame(r)
		if err != nil {
			return fmt.Errorf("port: %w", err)
		}
		switch f.kind {
		case frameJob:
			var job jobMessage
			if err := f.decode(&job); err != nil {
				return err
			}
			go g.run(&job, started)
			g.pidfd = <-started
		case frameStdin:
			g.stdin <- f.data
		case frameSignal:
			if g.pidfd > 0 && len(f.data) == 1 {
				_ = unix.PidfdSendSignal(g.pidfd, unix.Signal(f.data[0]), nil, 0) // it may have ended
			}
		}
	}
}

// beat reports once a second that the guest is alive, and what its kernel says.
func (g *guest) beat() {
	for range time.Tick(time.Second) {
		if err := errors.Join(g.reportKernelLog(), g.out.send(frameBeat, nil)); err != nil {
			fmt.Fprintln(os.Stderr, "rdmavm: heartbeat:", err)
			return
		}
	}
}

func (g *guest) reportKernelLog() error {
	return g.kmsg.drain(func(line string) error { return g.out.send(frameLog, []byte(line)) })
}
