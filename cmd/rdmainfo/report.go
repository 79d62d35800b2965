package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/rdma"
)

// report is all that rdmainfo tells.
type report struct {
	Library  *rdma.LibraryInfo `json:"library"`         // nil if none could be loaded
	Error    string            `json:"error,omitempty"` // why there is no list of devices
	Backends []string          `json:"backends"`
	Devices  []device          `json:"devices"`
	Skipped  []skipped         `json:"skipped"`
}

// device is a device with what it can do, and what of it could not be read.
type device struct {
	rdma.DeviceInfo
	Report   []rdma.Capability `json:"report"`
	Problems []string          `json:"problems,omitempty"`
}

// skipped is what was left out.
type skipped struct {
	Device  string `json:"device"`
	Backend string `json:"backend,omitempty"`
	Reason  string `json:"reason"`
}

// survey looks at the machine.
func survey() *report {
	r := &report{Backends: rdma.Backends(), Devices: []device{}, Skipped: []skipped{}}
	if lib, err := rdma.Library(); err == nil {
		r.Library = &lib
	}
	devices, err := rdma.Devices()
	if err != nil {
		r.Error = err.Error()
	}
	for _, info := range devices {
		d := device{DeviceInfo: info, Problems: texts(info.Problems)}
		if d.Report, err = capabilities(d.Name); err != nil {
			d.Problems = append(d.Problems, err.Error())
		}
		r.Devices = append(r.Devices, d)
	}
	for _, s := range rdma.Skipped() {
		r.Skipped = append(r.Skipped, skipped{Device: s.Device, Backend: s.Backend, Reason: s.Err.Error()})
	}
	return r
}

// capabilities returns what a device can do and what not.
func capabilities(name string) ([]rdma.Capability, error) {
	dev, err := rdma.Open(name, nil)
	if err != nil {
		return nil, err
	}
	report, err := dev.Report()
	return report, errors.Join(err, dev.Close())
}

func texts(errs []error) []string {
	var out []string
	for _, err := range errs {
		out = append(out, err.Error())
	}
	return out
}

// names returns the devices that the report is about, those left out as well.
func (r *report) names() []string {
	var names []string
	for i := range r.Devices {
		names = append(names, r.Devices[i].Name)
	}
	for _, s := range r.Skipped {
		names = append(names, s.Device)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// only leaves the named devices in the report, all if there are no names. If
// one of them is not there, the report stays as it is and the error says which
// there are.
func (r *report) only(names []string) error {
	if len(names) == 0 {
		return nil
	}
	have := r.names()
	var missing []string
	for _, name := range names {
		if !slices.Contains(have, name) {
			missing = append(missing, strconv.Quote(name))
		}
	}
	if missing != nil && r.Error != "" {
		return fmt.Errorf("no device %s: %s", strings.Join(missing, ", "), r.Error)
	}
	if missing != nil && len(have) == 0 {
		return fmt.Errorf("no device %s: the kernel has no RDMA device", strings.Join(missing, ", "))
	}
	if missing != nil {
		return fmt.Errorf("no device %s (there are %s)", strings.Join(missing, ", "), strings.Join(have, ", "))
	}
	r.Devices = slices.DeleteFunc(r.Devices, func(d device) bool { return !slices.Contains(names, d.Name) })
	r.Skipped = slices.DeleteFunc(r.Skipped, func(s skipped) bool { return !slices.Contains(names, s.Device) })
	return nil
}

// lines collects lines of text and the first error of writing them.
type lines struct {
	w   io.Writer
	err error
}

func (l *lines) add(format string, args ...any) {
	if l.err == nil {
		_, l.err = fmt.Fprintf(l.w, format+"\n", args...)
	}
}

// writeText prints the report for people.
func (r *report) writeText(w io.Writer) error {
	out := &lines{w: w}
	if lib := r.Library; lib != nil {
		version := ""
		if lib.Version != "" {
			version = " of rdma-core " + lib.Version
		}
		out.add("library   %s%s", lib.Path, version)
		if len(lib.Missing) > 0 {
			out.add("  lacks   %s", strings.Join(lib.Missing, " "))
		}
	} else {
		out.add("library   none")
	}
	out.add("backends  %s", orNone(strings.Join(r.Backends, " ")))
	if r.Error != "" {
		out.add("error     %s", r.Error)
	} else if len(r.Devices) == 0 && len(r.Skipped) == 0 {
		out.add("devices   none: the kernel has no RDMA device")
	}
	for i := range r.Devices {
		r.Devices[i].write(out)
	}
	if len(r.Skipped) > 0 {
		out.add("\nleft out")
	}
	for _, s := range r.Skipped {
		name := s.Device
		if s.Backend != "" {
			name += " by " + s.Backend
		}
		out.add("  %s: %s", name, s.Reason)
	}
	return out.err
}

func (d *device) write(out *lines) {
	out.add("\n%s (%s)", d.Name, d.Backend)
	place := []string{d.UverbsName}
	if d.PCIAddress != "" {
		place = append(place, "PCI "+d.PCIAddress)
	}
	if d.NUMANode >= 0 {
		place = append(place, fmt.Sprintf("NUMA node %d", d.NUMANode))
	}
	if d.Driver != "" {
		place = append(place, "driver "+d.Driver)
	}
	out.add("  kind      %v, %v transport", d.NodeType, d.Transport)
	out.add("  place     %s", strings.Join(place, ", "))
	out.add("  maker     vendor %#06x, part %d, hardware %#x, firmware %s", d.VendorID, d.VendorPartID, d.HWVersion, orNone(d.FWVersion))
	out.add("  GUID      node %v, system %v", d.NodeGUID, d.SysImageGUID)
	out.add("  queues    QP %d, CQ %d, CQE %d, SRQ %d, SRQ WR %d", d.MaxQP, d.MaxCQ, d.MaxCQE, d.MaxSRQ, d.MaxSRQWR)
	out.add("  of a QP   %s", d.ofQP())
	out.add("  memory    PD %d, MR %d of %s, MW %d, AH %d", d.MaxPD, d.MaxMR, anyOr(d.MaxMRSize), d.MaxMW, d.MaxAH)
	out.add("  reads     %d in flight per QP, %d as initiator, %d in all", d.MaxQPReads, d.MaxQPInitiatorReads, d.MaxReads)
	out.add("  caps      %v", d.Caps)
	for _, c := range d.Report {
		if c.Missing != "" {
			out.add("  lacks     %s: %s", c.Name, c.Missing)
		} else {
			out.add("  has       %v", c)
		}
	}
	for i := range d.Ports {
		writePort(out, &d.Ports[i])
	}
	for _, p := range d.Problems {
		out.add("  problem   %s", p)
	}
}

// ofQP tells the limits of one queue pair.
func (d *device) ofQP() string {
	l := d.QPLimits
	text := fmt.Sprintf("send WR %d of SGE %d (read %d), receive WR %d of SGE %d", l.MaxSendWR, l.MaxSendSGE, d.MaxSGERead, l.MaxRecvWR, l.MaxRecvSGE)
	if l.MaxInline > 0 {
		text += fmt.Sprintf(", inline %d bytes", l.MaxInline)
	}
	if l.MaxRDMASize > 0 {
		text += fmt.Sprintf(", read or write %d bytes", l.MaxRDMASize)
	}
	return text
}

func writePort(out *lines, p *rdma.PortInfo) {
	link := p.LinkLayer.String()
	if p.NetDev != "" {
		link += " on " + p.NetDev
	}
	out.add("  port %-4d %v (%v), %s, %v in %dX", p.Number, p.State, p.PhysState, link, p.Speed, p.Lanes)
	out.add("    limits  MTU %d of %d, message %d bytes, %d of %d GIDs, %d of %d P_Keys",
		p.ActiveMTU, p.MaxMTU, p.MaxMessage, len(p.GIDs), p.GIDTableLen, len(p.PKeys), p.PKeyTableLen)
	if p.LinkLayer == rdma.LinkLayerInfiniBand {
		out.add("    LID     %d, LMC %d, subnet manager at %d", p.LID, p.LMC, p.SMLID)
	}
	chosen, err := p.SelectGID(rdma.GIDChoice{})
	for _, e := range p.GIDs {
		words := []string{e.GID.String(), e.Type.String()}
		if e.NetDev != "" {
			words = append(words, e.NetDev)
		}
		if err == nil && e == chosen {
			words = append(words, "<- default")
		}
		out.add("    GID %-3d %s", e.Index, strings.Join(words, "  "))
	}
}

// anyOr writes a limit in bytes, which the largest number is not.
func anyOr(limit uint64) string {
	if limit == math.MaxUint64 {
		return "any size"
	}
	return fmt.Sprintf("%d bytes", limit)
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
