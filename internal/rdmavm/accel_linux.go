package rdmavm

import (
	"os"
	"strings"
	"time"
)

const (
	kvmSignTimeout = 3 * time.Second  // a KVM that works has printed something by then
	kvmBootTimeout = 10 * time.Second // and is ready by then
)

// An accelerator runs the guest's CPUs.
type accelerator string

const (
	kvm accelerator = "kvm"
	tcg accelerator = "tcg" // emulation
)

// accelerators are those to try for a mode, in this order.
func (c *cache) accelerators(mode Mode) []accelerator {
	switch mode {
	case ModeKVM:
		return []accelerator{kvm}
	case ModeTCG:
		return []accelerator{tcg}
	}
	if c.kvmWorthTrying() {
		return []accelerator{kvm, tcg}
	}
	return []accelerator{tcg}
}

// kvmWorthTrying tells if KVM may work: that there is a /dev/kvm says little.
func (c *cache) kvmWorthTrying() bool {
	if verdict, err := os.ReadFile(c.path(kvmVerdict())); err == nil {
		return string(verdict) == "works\n"
	}
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	f.Close()
	// kvm_pvm boots only kernels made for it, which stock ones are not.
	_, err = os.Stat("/sys/module/kvm_pvm")
	return err != nil
}

// judgeKVM records whether KVM works, until the host boots again.
func (c *cache) judgeKVM(works bool) error {
	verdict := "broken\n"
	if works {
		verdict = "works\n"
	}
	return c.put(kvmVerdict(), []byte(verdict))
}

func kvmVerdict() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "kvm-unknown"
	}
	return "kvm-" + strings.TrimSpace(string(boot))
}
