package rdma

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

func TestReportOfVerbs(t *testing.T) {
	const none = "the device reports none"
	lacking := []Capability{
		{Name: "atomics", Missing: none}, {Name: "memory windows", Missing: none}, {Name: "shared receive queues", Missing: none}, {Name: "XRC", Missing: none},
		{Name: "on-demand paging", Missing: none}, {Name: "device memory", Missing: none}, {Name: "completion timestamps", Missing: none},
	}
	if diff := cmp.Diff(lacking, reportVerbs(new(DeviceInfo))); diff != "" {
		t.Errorf("a device without anything (-want +got):\n%s", diff)
	}
	all := []Capability{
		{Name: "atomics", Value: "atomic with the processor and other devices too"}, {Name: "memory windows", Value: "type 1, type 2B"},
		{Name: "shared receive queues", Value: "up to 7 of 9 requests"}, {Name: "XRC"},
		{Name: "on-demand paging", Value: "RC, UD"}, {Name: "device memory", Value: "4096 bytes"}, {Name: "completion timestamps", Value: "of a clock of 156250 kHz"},
	}
	got := reportVerbs(&DeviceInfo{
		AtomicCap: AtomicGlobal, MaxSRQ: 7, MaxSRQWR: 9, MaxDMSize: 4096, TimestampMask: 1<<48 - 1, CoreClock: 156250, ODP: ODPCaps{RC: 1, UD: 2},
		Caps: DeviceCaps(ibverbs.IBV_DEVICE_XRC | ibverbs.IBV_DEVICE_MEM_WINDOW | ibverbs.IBV_DEVICE_MEM_WINDOW_TYPE_2B),
	})
	if diff := cmp.Diff(all, got); diff != "" {
		t.Errorf("a device with everything (-want +got):\n%s", diff)
	}
}

func TestBackendKnowsBetterThanVerbs(t *testing.T) {
	got := withOthers([]Capability{{Name: "b", Value: "backend's"}}, []Capability{{Name: "a", Value: "verbs'"}, {Name: "b", Value: "verbs'"}})
	if diff := cmp.Diff([]Capability{{Name: "b", Value: "backend's"}, {Name: "a", Value: "verbs'"}}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPeerMemoryNeedsItsKernelModule(t *testing.T) {
	for _, tt := range []struct {
		dir, want string
	}{
		{"module/other", "no peer memory: no kernel module for it is loaded, such as nvidia_peermem"},
		{"module/nvidia_peermem", "peer memory: nvidia_peermem"},
		{"kernel/mm/memory_peers/amdkfd", "peer memory: amdkfd"},
	} {
		sys := t.TempDir()
		if err := os.MkdirAll(filepath.Join(sys, tt.dir), 0o755); err != nil {
			t.Fatal(err)
		}
		if got := reportPeerMemory(sys).String(); got != tt.want {
			t.Errorf("with %s: %q, want %q", tt.dir, got, tt.want)
		}
	}
}
