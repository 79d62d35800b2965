package rdma

import (
	"strings"
	"testing"

	"github.com/goverbs/goverbs/rdma/backend"
)

func TestSpeedOfEveryGeneration(t *testing.T) {
	tests := []struct {
		width uint8
		rate  uint32
		want  string
	}{
		{1, 1, "2.5 Gb/s"},    // 1X SDR
		{2, 2, "20 Gb/s"},     // 4X DDR
		{2, 4, "40 Gb/s"},     // 4X QDR
		{2, 8, "40 Gb/s"},     // 4X FDR10
		{2, 16, "56 Gb/s"},    // 4X FDR
		{2, 32, "100 Gb/s"},   // 4X EDR
		{2, 64, "200 Gb/s"},   // 4X HDR
		{16, 64, "100 Gb/s"},  // 2X HDR
		{2, 128, "400 Gb/s"},  // 4X NDR
		{4, 128, "800 Gb/s"},  // 8X NDR
		{2, 256, "800 Gb/s"},  // 4X XDR
		{8, 256, "2400 Gb/s"}, // 12X XDR
		{3, 64, "unknown"},
		{2, 3, "unknown"},
		{0, 0, "unknown"},
	}
	for _, tt := range tests {
		if got := (Speed(laneCounts[tt.width]) * laneRates[tt.rate]).String(); got != tt.want {
			t.Errorf("width %d at rate %d is %s, want %s", tt.width, tt.rate, got, tt.want)
		}
	}
}

func TestDeviceSpeedCountsActivePortsOnly(t *testing.T) {
	d := DeviceInfo{Ports: []PortInfo{{State: PortDown, Speed: 400 * Gigabit}, {State: PortActive, Speed: 100 * Gigabit}, {State: PortActive, Speed: 25 * Gigabit}}}
	if got := d.Speed(); got != 100*Gigabit {
		t.Errorf("speed is %v", got)
	}
	d.Ports = d.Ports[:1]
	if got := d.Speed(); got != 0 {
		t.Errorf("without an active port it is %v", got)
	}
}

func TestMTUCodesAreTheFiveOfInfiniBand(t *testing.T) {
	for code, m := range map[uint8]MTU{1: MTU256, 2: MTU512, 3: MTU1024, 4: MTU2048, 5: MTU4096} {
		if mtuOf(code) != m || mtuCode(m) != code {
			t.Errorf("code %d is %d, MTU %d has code %d", code, mtuOf(code), m, mtuCode(m))
		}
	}
	for _, m := range []MTU{0, 1, 1500, 8192, -256} {
		if mtuCode(m) != 0 {
			t.Errorf("MTU %d has code %d", m, mtuCode(m))
		}
	}
	for _, code := range []uint8{0, 6, 255} {
		if mtuOf(code) != 0 {
			t.Errorf("code %d is MTU %d", code, mtuOf(code))
		}
	}
}

func TestFlagsAndEnumsShowWhatHasNoName(t *testing.T) {
	for got, want := range map[string]string{
		DeviceCaps(0).String():                     "none",
		DeviceCaps(1<<20 | 1<<36 | 1<<50).String(): "XRC|PCI_WRITE_END_PADDING|0x4000000000000",
		DeviceCaps(1 << 41).String():               "CC_DMA_BOUNCE",
		PortCaps(1<<16 | 1).String():               "CM_SUP|0x1",
		backend.Access(0).String():                 "LOCAL_READ",
		backend.Access(1 | 2 | 1<<12).String():     "LOCAL_WRITE|REMOTE_WRITE|0x1000",
		PortState(4).String():                      "ACTIVE",
		PortState(9).String():                      "unknown (9)",
		LinkLayer(2).String():                      "Ethernet",
		NodeType(-1).String():                      "unknown",
		Transport(1).String():                      "iWARP",
		GIDType(0).String():                        "unknown (0)",
		GUID(0x0002c90300f48a10).String():          "0002:c903:00f4:8a10",
		byteCount(64 << 10):                        "64 KiB",
		byteCount(1000):                            "1000 bytes",
		byteCount(0):                               "0 bytes",
		byteCount(3 << 40):                         "3 TiB",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestPortThatIsNotThereListsThoseThatAre(t *testing.T) {
	d := DeviceInfo{Name: "mlx5_0", Ports: []PortInfo{{Number: 1}, {Number: 2}}}
	if p, err := d.Port(2); err != nil || p.Number != 2 {
		t.Errorf("port 2 is %v, %v", p, err)
	}
	if _, err := d.Port(7); err == nil || !strings.Contains(err.Error(), "mlx5_0: no port 7 (ports: 1, 2)") {
		t.Errorf("error is %v", err)
	}
}
