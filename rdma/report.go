package rdma

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/goverbs/goverbs/rdma/backend"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// Capability is something that devices may be able to do, what there is of it,
// and if nothing, why not.
//
// Its fields and methods: go doc github.com/goverbs/goverbs/rdma/backend.Capability
type Capability = backend.Capability

// Report tells what the device can do and what it can't, and why: first what
// its backend knows, then what verbs tell of any device, and by which ways it
// reaches memory of GPUs. Where the answer lies with the library or the kernel
// rather than the device, it is about those that are in use.
//
// It asks the device again each time, which takes a few system calls. An error
// wraps what the device answered to its backend.
func (d *Device) Report() ([]Capability, error) {
	ctx, err := d.acquire("report")
	if err != nil {
		return nil, err
	}
	defer d.release()
	var report []Capability
	if r, ok := d.be.(backend.Reporter); ok {
		if report, err = r.Report(ctx); err != nil {
			return nil, opError("report", d.id.name, err)
		}
	}
	return withOthers(report, append(reportVerbs(&d.info), d.reportDMABuf(ctx), reportPeerMemory("/sys"))), nil
}

// withOthers appends those of others whose names are not in report.
func withOthers(report, others []Capability) []Capability {
	for _, c := range others {
		if !slices.ContainsFunc(report, func(known Capability) bool { return known.Name == c.Name }) {
			report = append(report, c)
		}
	}
	return report
}

// reportVerbs tells what verbs do of a device.
func reportVerbs(info *DeviceInfo) []Capability {
	has := func(name string, has bool, value string) Capability {
		if !has {
			return Capability{Name: name, Missing: "the device reports none"}
		}
		return Capability{Name: name, Value: value}
	}
	var windows []string
	for _, w := range []struct {
		cap  ibverbs.DeviceCapFlags
		name string
	}{
		{ibverbs.IBV_DEVICE_MEM_WINDOW, "type 1"},
		{ibverbs.IBV_DEVICE_MEM_WINDOW_TYPE_2A, "type 2A"},
		{ibverbs.IBV_DEVICE_MEM_WINDOW_TYPE_2B, "type 2B"},
	} {
		if info.Caps&DeviceCaps(w.cap) != 0 {
			windows = append(windows, w.name)
		}
	}
	var paged []string
	for _, t := range []struct {
		name string
		caps uint32
	}{{"RC", info.ODP.RC}, {"UC", info.ODP.UC}, {"UD", info.ODP.UD}, {"XRC", info.ODP.XRC}} {
		if t.caps != 0 {
			paged = append(paged, t.name)
		}
	}
	return []Capability{
		has("atomics", info.AtomicCap != AtomicNone, map[AtomicCap]string{
			AtomicHCA: "atomic with those of the same device", AtomicGlobal: "atomic with the processor and other devices too",
		}[info.AtomicCap]),
		has("memory windows", windows != nil, strings.Join(windows, ", ")),
		has("shared receive queues", info.MaxSRQ > 0, fmt.Sprintf("up to %d of %d requests", info.MaxSRQ, info.MaxSRQWR)),
		has("XRC", info.Caps&DeviceCaps(ibverbs.IBV_DEVICE_XRC) != 0, ""),
		has("on-demand paging", paged != nil, strings.Join(paged, ", ")),
		has("device memory", info.MaxDMSize > 0, fmt.Sprintf("%d bytes", info.MaxDMSize)),
		has("completion timestamps", info.TimestampMask != 0, fmt.Sprintf("of a clock of %d kHz", info.CoreClock)),
	}
}

// reportDMABuf finds out whether the device takes DMA-bufs, by offering it none:
// who takes them says that the descriptor is a bad one.
func (d *Device) reportDMABuf(ctx *ibverbs.Context) Capability {
	c := Capability{Name: "DMA-buf memory"}
	pd, err := d.verbs.allocPD(ctx)
	if err != nil {
		c.Missing = fmt.Sprintf("alloc_pd: %v", err)
		return c
	}
	mr, err := ibverbs.RegDMABufMR(pd, 0, uint64(os.Getpagesize()), 0, -1, 0)
	if err == nil {
		err = ibverbs.DeregMR(mr)
	} else if errors.Is(err, syscall.EBADF) {
		err = nil
	}
	if err := errors.Join(err, d.verbs.deallocPD(pd)); err != nil {
		c.Missing = err.Error()
	}
	return c
}

// reportPeerMemory tells whether a kernel module lets memory of GPUs be
// registered by its address. sys is the mount of sysfs.
func reportPeerMemory(sys string) Capability {
	c := Capability{Name: "peer memory"}
	for _, place := range []string{"module/nvidia_peermem", "kernel/mm/memory_peers/*"} {
		found, _ := filepath.Glob(filepath.Join(sys, place)) // the pattern is well-formed
		if len(found) > 0 {
			c.Value = filepath.Base(found[0])
			return c
		}
	}
	c.Missing = "no kernel module for it is loaded, such as nvidia_peermem"
	return c
}
