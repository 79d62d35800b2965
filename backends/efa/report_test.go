package efa

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/zz_generated/efadv"
)

func TestReasonIsTheLibraryOrTheDevice(t *testing.T) {
	const (
		read  = efadv.EFADV_DEVICE_ATTR_CAPS_RDMA_READ
		write = efadv.EFADV_DEVICE_ATTR_CAPS_RDMA_WRITE
	)
	for _, tt := range []struct {
		caps    efadv.DeviceCaps
		version string
		want    string // of RDMA write
	}{
		{read, "44.0", "no RDMA write: libefa of rdma-core 44.0 does not know it, that of 46 does"},
		{read, "46.0", "no RDMA write: device caps lack it"},
		{read, "", "no RDMA write: device caps lack it"},
		{read | write, "56.1", "RDMA write: up to 4096 bytes a request"},
	} {
		for _, c := range capabilities(&efadv.DeviceAttr{DeviceCaps: tt.caps, MaxRDMASize: 4096}, tt.version) {
			switch c.Name {
			case "RDMA write":
				if diff := cmp.Diff(tt.want, c.String()); diff != "" {
					t.Errorf("rdma-core %q (-want +got):\n%s", tt.version, diff)
				}
			case "RDMA read":
				if c.Missing != "" {
					t.Errorf("rdma-core %q: %v", tt.version, c)
				}
			}
		}
	}
}

func TestReportTellsTheLimits(t *testing.T) {
	got := capabilities(&efadv.DeviceAttr{MaxSQWR: 4096, MaxSQSGE: 2, InlineBufSize: 32, InlineBufSizeEx: 96, MaxRQWR: 32768, MaxRQSGE: 3}, "64.0")
	text := make(map[string]string)
	for _, c := range got {
		text[c.Name] = c.Value
	}
	for name, want := range map[string]string{
		"send queue":    "up to 4096 requests of 2 pieces of memory, 96 bytes inline",
		"receive queue": "up to 32768 requests of 3 pieces of memory",
	} {
		if text[name] != want {
			t.Errorf("%s: %q, want %q", name, text[name], want)
		}
	}
}
