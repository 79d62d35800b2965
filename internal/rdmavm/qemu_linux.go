package rdmavm

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	portName = "rdmavm"
	rootTag  = "hostroot"

	// Every guest has so many shares at least, so that a saved state, which
	// needs the very same devices, fits whatever folders are shared.
	minShares = 4

	// initVariable tells this program that it is the guest's init: the kernel
	// hands what it does not know on its command line to init's environment.
	initVariable = "RDMAVM_INIT"
)

// A machineConfig is what a QEMU is started with.
type machineConfig struct {
	accel   accelerator
	cpus    int
	memory  int // MiB
	kernel  string
	initrd  string
	shares  []share
	empty   string // the folder of unused shares
	restore *os.File
}

// File descriptors that QEMU inherits: no sockets in the file system, no races.
const (
	consoleFD = 3 + iota
	portFD
	monitorFD
	restoreFD
)

// args returns QEMU's arguments: those that a saved state depends on and the
// others. Their order is no matter to QEMU.
func (m *machineConfig) args() (fixed, variable []string) {
	accel, cpu, verbosity := "tcg,thread=multi,tb-size=512", "max", "quiet"
	if m.accel == kvm {
		// An early console: a sign of life within half a second.
		accel, cpu, verbosity = "kvm", "host", "earlyprintk=ttyS0,115200"
	}
	cmdline := []string{
		"console=ttyS0", verbosity, "rdinit=/init", initVariable + "=1",
		"panic=-1", "oops=panic", // with -no-reboot: QEMU ends at once
		// A CPU that waits for its turn on a busy host is no lock-up: the
		// launcher watches the heartbeat instead.
		"nowatchdog", "rcupdate.rcu_cpu_stall_suppress=1",
		// Nor is a timer broken that did not tick ten times while the kernel
		// counted: it would panic.
		"no_timer_check",
		"mitigations=off", "nokaslr", "cryptomgr.notests", "audit=0", "random.trust_cpu=on",
	}
	fixed = []string{
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-machine", "q35", "-accel", accel, "-cpu", cpu,
		"-smp", strconv.Itoa(m.cpus), "-m", strconv.Itoa(m.memory),
		"-kernel", m.kernel, "-initrd", m.initrd, "-append", strings.Join(cmdline, " "),
		"-chardev", fmt.Sprintf("socket,id=console,fd=%d", consoleFD), "-serial", "chardev:console",
		"-device", "virtio-serial-pci",
		"-chardev", fmt.Sprintf("socket,id=port,fd=%d", portFD), "-device", "virtserialport,chardev=port,name=" + portName,
		"-chardev", fmt.Sprintf("socket,id=monitor,fd=%d", monitorFD), "-mon", "chardev=monitor,mode=control",
		"-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap",
		"-device", "virtio-9p-pci,fsdev=root,mount_tag=" + rootTag,
	}
	for i := range max(minShares, len(m.shares)) {
		tag, path, access := fmt.Sprintf("rw%d", i), m.empty, ",readonly=on"
		if i < len(m.shares) {
			tag, path, access = m.shares[i].Tag, m.shares[i].Path, ""
		}
		fixed = append(fixed, "-device", fmt.Sprintf("virtio-9p-pci,fsdev=%s,mount_tag=%s", tag, tag))
		variable = append(variable, "-fsdev", fmt.Sprintf("local,id=%s,path=%s,security_model=none%s,multidevs=remap",
			tag, strings.ReplaceAll(path, ",", ",,"), access))
	}
	if m.restore != nil {
		variable = append(variable, "-incoming", fmt.Sprintf("fd:%d", restoreFD))
	}
	return fixed, variable
}

// stateName is the cache entry of the guest that these arguments boot, saved.
func (m *machineConfig) stateName(qemu string) (string, error) {
	info, err := os.Stat(qemu)
	if err != nil {
		return "", err
	}
	fixed, _ := m.args()
	key := sha256.Sum256(fmt.Appendln(nil, fixed, qemu, info.Size(), info.ModTime().UnixNano()))
	return fmt.Sprintf("state-%x", key[:8]), nil
}

// A machine is a running QEMU.
type machine struct {
	cmd     *exec.Cmd
	console tail // the guest's serial console
	stderr  tail // QEMU's own words
	port    *os.File
	monitor *os.File
	ended   chan struct{} // closed when QEMU is gone and the console is read to its end
}

func startMachine(qemu string, config *machineConfig) (*machine, error) {
	fixed, variable := config.args()
	m := &machine{cmd: exec.Command(qemu, append(fixed, variable...)...), ended: make(chan struct{})}
	m.cmd.Stderr = &m.stderr
	var ours [3]*os.File
	closeOurs := func() {
		for _, f := range ours {
			f.Close() // nil has nothing to close
		}
	}
	for i, name := range []string{"console", "port", "monitor"} {
		here, there, err := socketPair(name)
		if err != nil {
			closeOurs()
			return nil, err
		}
		ours[i] = here
		m.cmd.ExtraFiles = append(m.cmd.ExtraFiles, there)
		defer there.Close()
	}
	console := ours[0]
	m.port, m.monitor = ours[1], ours[2]
	if config.restore != nil {
		m.cmd.ExtraFiles = append(m.cmd.ExtraFiles, config.restore)
	}
	m.cmd.SysProcAttr = &unix.SysProcAttr{
		Pdeathsig: unix.SIGKILL, // QEMU goes with the launcher, even if that is killed
		Setpgid:   true,         // a terminal's ^C is for the program
	}
	started := make(chan error, 1)
	go func() {
		// The signal comes when the *thread* that started QEMU ends, so that
		// one is kept until QEMU ends.
		runtime.LockOSThread()
		err := m.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		_ = m.cmd.Wait() // QEMU's own status says nothing about the guest
		_ = console.SetReadDeadline(time.Now().Add(time.Second))
	}()
	if err := <-started; err != nil {
		closeOurs()
		return nil, err
	}
	go func() {
		defer close(m.ended)
		defer console.Close()
		buf := make([]byte, 4096)
		for {
			n, err := console.Read(buf)
			m.console.Write(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	return m, nil
}

// stop ends QEMU, if it still runs, and waits for that.
func (m *machine) stop() {
	_ = m.cmd.Process.Kill() // it may have ended by itself
	<-m.ended
	m.port.Close()
	m.monitor.Close()
}

// log is the end of what guest and QEMU said, for an error message.
func (m *machine) log() string {
	var b strings.Builder
	if lines := m.console.lines(60); len(lines) > 0 {
		b.WriteString("\n--- guest console ---\n" + strings.Join(lines, "\n"))
	}
	if lines := m.stderr.lines(20); len(lines) > 0 {
		b.WriteString("\n--- qemu ---\n" + strings.Join(lines, "\n"))
	}
	return b.String()
}

// socketPair returns a connection: our end, which Go's poller knows, and QEMU's.
func socketPair(name string) (here, there *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	err = unix.SetNonblock(fds[0], true)
	here, there = os.NewFile(uintptr(fds[0]), name), os.NewFile(uintptr(fds[1]), name)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("socketpair: %w", err), here.Close(), there.Close())
	}
	return here, there, nil
}
