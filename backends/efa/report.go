package efa

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/rdma/backend"
	"github.com/goverbs/goverbs/zz_generated/efadv"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// features are what some devices can do and others can't, each with the first
// rdma-core whose libefa knows it, if there is an older one that doesn't.
var features = []struct {
	name  string
	cap   efadv.DeviceCaps
	since int
	rdma  bool // has the limit of reads and writes
}{
	{"RDMA read", efadv.EFADV_DEVICE_ATTR_CAPS_RDMA_READ, 0, true},
	{"RDMA write", efadv.EFADV_DEVICE_ATTR_CAPS_RDMA_WRITE, 46, true},
	{"RDMA write with immediate", efadv.EFADV_DEVICE_ATTR_CAPS_RDMA_WRITE, 46, true},
	{"writes with immediate that take no receive", efadv.EFADV_DEVICE_ATTR_CAPS_UNSOLICITED_WRITE_RECV, 52, false},
	{"limit of RNR retries", efadv.EFADV_DEVICE_ATTR_CAPS_RNR_RETRY, 0, false},
	{"source address of an unknown sender", efadv.EFADV_DEVICE_ATTR_CAPS_CQ_WITH_SGID, 43, false},
	{"completion queue in a DMA-buf", efadv.EFADV_DEVICE_ATTR_CAPS_CQ_WITH_EXT_MEM_DMABUF, 59, false},
}

// Report implements [backend.Reporter].
func (driver) Report(ctx *ibverbs.Context) ([]backend.Capability, error) {
	a, err := query(ctx)
	if err != nil {
		return nil, err
	}
	lib, err := efadv.Library()
	if err != nil {
		return nil, err
	}
	return capabilities(a, lib.Version), nil
}

// capabilities tells what a device can do with libefa of the given rdma-core,
// such as "44.0", "" if that is not known.
func capabilities(a *efadv.DeviceAttr, version string) []backend.Capability {
	report := []backend.Capability{
		{Name: "reliable connections (RC)", Missing: "EFA has scalable reliable datagrams instead"},
		{Name: "scalable reliable datagrams (SRD)", Value: "in no order, a message in one packet"},
	}
	major, _, _ := strings.Cut(version, ".")
	release, err := strconv.Atoi(major)
	for _, f := range features {
		c := backend.Capability{Name: f.name}
		switch {
		case a.DeviceCaps&f.cap == 0 && err == nil && release < f.since:
			c.Missing = fmt.Sprintf("libefa of rdma-core %s does not know it, that of %d does", version, f.since)
		case a.DeviceCaps&f.cap == 0:
			c.Missing = "device caps lack it"
		case f.rdma:
			c.Value = fmt.Sprintf("up to %d bytes a request", a.MaxRDMASize)
		}
		report = append(report, c)
	}
	return report
}
