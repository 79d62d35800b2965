package rdma

import (
	"errors"
	"io"
	"log/slog"
	"math"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// bigDevice can do more than any default.
func bigDevice() *DeviceInfo {
	return &DeviceInfo{
		Name: "big0", QPLimits: QPLimits{MaxSendWR: 32768, MaxRecvWR: 32768, MaxSendSGE: 30, MaxRecvSGE: 30}, MaxQPReads: 16, MaxQPInitiatorReads: 16,
		Ports: []PortInfo{
			{Number: 1, State: PortDown, LinkLayer: LinkLayerEthernet, MaxMTU: MTU4096, ActiveMTU: MTU1024, MaxMessage: 1 << 30, PKeyTableLen: 128},
			{Number: 2, State: PortActive, LinkLayer: LinkLayerEthernet, MaxMTU: MTU4096, ActiveMTU: MTU4096, MaxMessage: 1 << 30, PKeyTableLen: 128},
		},
	}
}

// smallDevice is less than every default.
func smallDevice() *DeviceInfo {
	return &DeviceInfo{
		Name: "small0", QPLimits: QPLimits{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 2, MaxRecvSGE: 2}, MaxQPReads: 4, MaxQPInitiatorReads: 1,
		Ports: []PortInfo{{Number: 1, State: PortActive, LinkLayer: LinkLayerInfiniBand, MaxMTU: MTU4096, ActiveMTU: MTU1024, MaxMessage: 8 << 20, PKeyTableLen: 1}},
	}
}

func noDefaults(*Config) error { return nil }

func TestConfigDefaults(t *testing.T) {
	logger := slog.New(slog.NewTextHandler(io.Discard, nil))
	big, err := deviceConfig(noDefaults, bigDevice(), &Config{Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		Port: 2, MaxSendWR: 512, MaxRecvWR: 512, MaxSendSGE: 4, MaxRecvSGE: 4, PathMTU: 4096, RetryCount: 7, RNRRetry: 7,
		Timeout: 67108864, MinRNRTimer: 640 * time.Microsecond, MaxReadDepth: 16, MaxReadDepthTarget: 16,
		HopLimit: 64, SignalInterval: 1, MaxMessage: 1 << 30,
	}
	ignore := cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Logger" || p.Last().String() == ".GID" }, cmp.Ignore())
	if diff := cmp.Diff(want, big, ignore); diff != "" {
		t.Errorf("a device without tight limits (-want +got):\n%s", diff)
	}
	if big.Logger != logger {
		t.Error("the logger was not kept")
	}

	small, err := deviceConfig(noDefaults, smallDevice(), nil)
	if err != nil {
		t.Fatal(err)
	}
	want.Port, want.MaxSendWR, want.MaxRecvWR, want.MaxSendSGE, want.MaxRecvSGE = 1, 64, 64, 2, 2
	want.PathMTU, want.MaxReadDepth, want.MaxReadDepthTarget, want.MaxMessage = 1024, 1, 4, 8<<20
	if diff := cmp.Diff(want, small, ignore); diff != "" {
		t.Errorf("a device with tight limits (-want +got):\n%s", diff)
	}
	if small.Logger == nil {
		t.Error("no default logger")
	}
}

func TestConfigBackendDefaultsComeBeforeTheUsers(t *testing.T) {
	srd := func(c *Config) error {
		c.MaxSendSGE, c.MaxRecvSGE, c.MaxReadDepth, c.MaxReadDepthTarget = 1, 1, 0, 0
		return nil
	}
	cfg, err := deviceConfig(srd, bigDevice(), nil)
	if err != nil || cfg.MaxSendSGE != 1 || cfg.MaxReadDepth != 0 {
		t.Errorf("got %d SGE and read depth %d, %v; want the backend's 1 and 0", cfg.MaxSendSGE, cfg.MaxReadDepth, err)
	}
	cfg, err = deviceConfig(srd, bigDevice(), &Config{MaxSendSGE: 3})
	if err != nil || cfg.MaxSendSGE != 3 || cfg.MaxRecvSGE != 1 {
		t.Errorf("got %d and %d SGE, %v; want the user's 3 and the backend's 1", cfg.MaxSendSGE, cfg.MaxRecvSGE, err)
	}
	if _, err = deviceConfig(func(*Config) error { return syscall.EIO }, bigDevice(), nil); !errors.Is(err, syscall.EIO) {
		t.Errorf("the backend's error became %v", err)
	}
}

// limiter is a backend whose devices have unlike queues.
type limiter struct {
	fakeBackend
	err error
}

func (b *limiter) Limits(_ *ibverbs.Context, l *QPLimits) error {
	if b.err == nil {
		l.MaxRecvWR, l.MaxSendSGE, l.MaxInline, l.MaxRDMASize = 2*l.MaxRecvWR, 2, 32, 1<<30
	}
	return b.err
}

func TestConfigIsBoundByWhatTheBackendKnows(t *testing.T) {
	v := newFakeVerbs(roce("a0"))
	be := &limiter{fakeBackend: fakeBackend{name: "vendor", claim: claims(true)}}
	r := newRegistry(t, v, be)
	devices, err := r.devices()
	if err != nil {
		t.Fatal(err)
	}
	want := QPLimits{MaxSendWR: 1024, MaxRecvWR: 2048, MaxSendSGE: 2, MaxRecvSGE: 16, MaxInline: 32, MaxRDMASize: 1 << 30}
	if got := devices[0].QPLimits; got != want {
		t.Errorf("limits are %+v, want %+v", got, want)
	}
	d, err := r.open("", "a0", &Config{MaxSendWR: 1024, MaxRecvWR: 2048, MaxSendSGE: 2, MaxInline: 32, MaxMessage: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	for text, cfg := range map[string]Config{
		"MaxSendWR is 1025, allowed is 0 to 1024":                {MaxSendWR: 1025},
		"MaxRecvWR is 2049, allowed is 0 to 2048":                {MaxRecvWR: 2049},
		"MaxSendSGE is 3, allowed is 0 to 2":                     {MaxSendSGE: 3},
		"MaxInline is 33, allowed is 0 to 32":                    {MaxInline: 33},
		"MaxMessage is 1073741825, allowed is 1 to 1073741824 b": {MaxMessage: 1<<30 + 1},
	} {
		if _, err := r.open("", "a0", &cfg); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want %q", err, text)
		}
	}

	// A device that does not answer keeps what verbs tell.
	be.err = syscall.EIO
	if err := r.refresh(); err != nil {
		t.Fatal(err)
	}
	if devices, err = r.devices(); err != nil {
		t.Fatal(err)
	}
	want = QPLimits{MaxSendWR: 1024, MaxRecvWR: 1024, MaxSendSGE: 16, MaxRecvSGE: 16}
	if got := devices[0]; got.QPLimits != want || len(got.Problems) != 1 || !errors.Is(got.Problems[0], syscall.EIO) {
		t.Errorf("limits are %+v with problems %v, want %+v and EIO", got.QPLimits, got.Problems, want)
	}
	v.checkNothingOpen(t)
}

func TestConfigNegativeMeansZero(t *testing.T) {
	cfg, err := deviceConfig(noDefaults, bigDevice(), &Config{
		MaxSendWR: -1, MaxRecvWR: -1, MaxSendSGE: -1, MaxRecvSGE: -1, RetryCount: -1, RNRRetry: -1,
		Timeout: -1, MaxReadDepth: -1, MaxReadDepthTarget: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]int{
		"MaxSendWR": cfg.MaxSendWR, "MaxRecvWR": cfg.MaxRecvWR, "MaxSendSGE": cfg.MaxSendSGE, "MaxRecvSGE": cfg.MaxRecvSGE,
		"RetryCount": cfg.RetryCount, "RNRRetry": cfg.RNRRetry, "Timeout": int(cfg.Timeout),
		"MaxReadDepth": cfg.MaxReadDepth, "MaxReadDepthTarget": cfg.MaxReadDepthTarget,
	} {
		if v != 0 {
			t.Errorf("%s is %d", name, v)
		}
	}
}

func TestConfigRefusalNamesFieldValueAndLimit(t *testing.T) {
	tests := []struct {
		cfg  Config
		want []string
	}{
		{Config{Port: 3}, []string{"no port 3", "1, 2"}},
		{Config{Port: -1}, []string{"no port -1"}},
		{Config{MaxSendWR: 40000}, []string{"MaxSendWR", "40000", "32768"}},
		{Config{MaxRecvWR: 40000}, []string{"MaxRecvWR", "40000", "32768"}},
		{Config{MaxSendSGE: 31}, []string{"MaxSendSGE", "31", "30"}},
		{Config{MaxRecvSGE: 31}, []string{"MaxRecvSGE", "31", "30"}},
		{Config{PathMTU: 1500}, []string{"PathMTU", "1500", "256, 512, 1024, 2048 or 4096"}},
		{Config{Port: 1, PathMTU: 8192}, []string{"PathMTU", "8192"}},
		{Config{RetryCount: 8}, []string{"RetryCount", "8", "7"}},
		{Config{RNRRetry: 8}, []string{"RNRRetry", "8", "7"}},
		{Config{Timeout: math.MaxInt64}, []string{"Timeout", "2h26m36"}},
		{Config{MinRNRTimer: time.Second}, []string{"MinRNRTimer", "1s", "655.36ms"}},
		{Config{MinRNRTimer: -1}, []string{"MinRNRTimer", "more than 0"}},
		{Config{MaxReadDepth: 17}, []string{"MaxReadDepth", "17", "16"}},
		{Config{MaxReadDepthTarget: 17}, []string{"MaxReadDepthTarget", "17", "16"}},
		{Config{PKeyIndex: 128}, []string{"PKeyIndex", "128", "127"}},
		{Config{TrafficClass: 256}, []string{"TrafficClass", "256", "255"}},
		{Config{FlowLabel: 1 << 20}, []string{"FlowLabel", "1048576", "1048575"}},
		{Config{SL: 8}, []string{"SL", "8", "7"}},
		{Config{HopLimit: 256}, []string{"HopLimit", "256", "255"}},
		{Config{HopLimit: -1}, []string{"HopLimit", "-1"}},
		{Config{SignalInterval: 513}, []string{"SignalInterval", "513", "512", "MaxSendWR"}},
		{Config{MaxMessage: 2 << 30}, []string{"MaxMessage", "2147483648", "1073741824"}},
		{Config{MaxMessage: -1}, []string{"MaxMessage", "-1"}},
		{Config{GID: GIDAt(-1)}, []string{"GID", "-1"}},
	}
	for _, tt := range tests {
		_, err := deviceConfig(noDefaults, bigDevice(), &tt.cfg)
		if err == nil {
			t.Errorf("%v was accepted", tt.want)
			continue
		}
		for _, want := range append(tt.want, "big0") {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("error %q does not name %q", err, want)
			}
		}
	}
}

func TestConfigMTUIsBoundToTheActiveOne(t *testing.T) {
	info := smallDevice()
	if _, err := deviceConfig(noDefaults, info, &Config{PathMTU: MTU2048}); err == nil || !strings.Contains(err.Error(), "at most 1024") {
		t.Errorf("an MTU above the active one gave %v", err)
	}
	info.Ports[0].State = PortDown // its active MTU means nothing then
	if cfg, err := deviceConfig(noDefaults, info, nil); err != nil || cfg.PathMTU != MTU4096 {
		t.Errorf("with the port down the MTU is %v, %v", cfg.PathMTU, err)
	}
}

func TestConfigOfQueuePairOverridesItsDevices(t *testing.T) {
	info := bigDevice()
	base, err := deviceConfig(noDefaults, info, &Config{MaxSendWR: 100, MaxReadDepth: -1, SL: 3, GID: GIDAt(7)})
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := overrideConfig(base, info, Config{MaxRecvWR: 9, SL: -1})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.MaxSendWR != 100 || cfg.MaxRecvWR != 9 || cfg.MaxReadDepth != 0 || cfg.SL != 0 || cfg.GID != GIDAt(7) || cfg.Port != 2 {
		t.Errorf("got %+v", cfg)
	}
	if _, err := overrideConfig(base, info, Config{MaxSendSGE: 99}); err == nil || !strings.Contains(err.Error(), "MaxSendSGE is 99") {
		t.Errorf("beyond the device's limit gave %v", err)
	}
	cfg, err = overrideConfig(base, info, Config{Port: 1})
	if err != nil || cfg.Port != 1 {
		t.Errorf("another port gave %d, %v", cfg.Port, err)
	}
}

// Some devices serve no more reads to all queue pairs together than others do
// to each.
func TestConfigReadDepthFitsTheDevicesBudget(t *testing.T) {
	info := bigDevice()
	info.MaxReads = 3
	if cfg, err := deviceConfig(noDefaults, info, nil); err != nil || cfg.MaxReadDepthTarget != 3 || cfg.MaxReadDepth != 16 {
		t.Errorf("depth %d and %d, %v; want 3 served and 16 started", cfg.MaxReadDepthTarget, cfg.MaxReadDepth, err)
	}
}

func TestHopLimitIs64ByDefault(t *testing.T) {
	for _, info := range []*DeviceInfo{bigDevice(), smallDevice()} {
		if cfg, err := deviceConfig(noDefaults, info, new(Config)); err != nil || cfg.HopLimit != 64 {
			t.Errorf("%s: hop limit %d, %v", info.Name, cfg.HopLimit, err)
		}
	}
}

func TestConfigOfDevicesThatTellTooMuchOrTooLittle(t *testing.T) {
	info := bigDevice()
	info.MaxQPReads, info.MaxQPInitiatorReads = 1024, 1024 // the wire form of an endpoint and the verbs have a byte
	for i := range info.Ports {
		info.Ports[i].MaxMessage = 0
	}
	cfg, err := deviceConfig(noDefaults, info, &Config{MaxReadDepth: 255, MaxReadDepthTarget: 255})
	if err != nil || cfg.MaxMessage != 1<<31 {
		t.Errorf("messages of up to %d bytes, %v; want 2 GiB", cfg.MaxMessage, err)
	}
	for _, user := range []Config{{MaxReadDepth: 256}, {MaxReadDepthTarget: 256}} {
		if _, err := deviceConfig(noDefaults, info, &user); err == nil || !strings.Contains(err.Error(), "allowed is 0 to 255") {
			t.Errorf("a depth of 256 gave %v", err)
		}
	}
}
