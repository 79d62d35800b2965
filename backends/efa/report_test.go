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
