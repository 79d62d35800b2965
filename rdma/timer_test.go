package rdma

import (
	"math"
	"testing"
	"time"
)

// checkCodes shows for every duration around every step that code rounds up to
// the next step there is, and no further.
func checkCodes(t *testing.T, code func(time.Duration) uint8, duration func(uint8) time.Duration, codes []uint8) {
	t.Helper()
	last := duration(codes[len(codes)-1])
	for i, c := range codes {
		step := duration(c)
		for _, d := range []time.Duration{step - 1, step, step + 1} {
			got := code(d)
			want := c
			if d > step && step != last {
				want = codes[i+1]
			}
			if i > 0 && d == duration(codes[i-1]) {
				continue // steps one apart
			}
			if got != want {
				t.Errorf("code of %v is %d (%v), want %d (%v)", d, got, duration(got), want, duration(want))
			}
		}
		if i > 0 && step <= duration(codes[i-1]) {
			t.Errorf("step %d is %v, not more than the one before", c, step)
		}
	}
	if got := code(math.MaxInt64); duration(got) != last {
		t.Errorf("code of the longest duration is %d (%v)", got, duration(got))
	}
}

func TestTimeoutCodesAreMonotonicAndRoundUp(t *testing.T) {
	var codes []uint8
	for c := uint8(1); c < 32; c++ {
		codes = append(codes, c)
	}
	checkCodes(t, timeoutCode, timeout, codes)
	for code, want := range map[uint8]time.Duration{1: 8192 * time.Nanosecond, 14: 67108864 * time.Nanosecond, 31: 8796093022208 * time.Nanosecond} {
		if got := timeout(code); got != want {
			t.Errorf("timeout %d is %v, want %v", code, got, want)
		}
	}
	if timeoutCode(0) != 0 || timeoutCode(-1) != 0 || timeoutCode(1) != 1 {
		t.Error("only zero and less may wait for ever")
	}
}

func TestRNRTimerCodesAreMonotonicAndRoundUp(t *testing.T) {
	var codes []uint8
	for c := uint8(1); c < 32; c++ {
		codes = append(codes, c)
	}
	checkCodes(t, rnrTimerCode, rnrTimer, append(codes, 0)) // code 0 is the longest
	for code, want := range map[uint8]time.Duration{0: 655360 * time.Microsecond, 1: 10 * time.Microsecond, 12: 640 * time.Microsecond, 31: 491520 * time.Microsecond} {
		if got := rnrTimer(code); got != want {
			t.Errorf("timer %d is %v, want %v", code, got, want)
		}
	}
	if rnrTimerCode(0) != 1 {
		t.Error("no wait must not become the longest one")
	}
}

func TestDefaultRNRTimerIsNearOneMillisecond(t *testing.T) {
	cfg := usualConfig()
	if code := rnrTimerCode(cfg.MinRNRTimer); code == 0 {
		t.Error("the default is the longest timer")
	}
	if cfg.MinRNRTimer < 100*time.Microsecond || cfg.MinRNRTimer > 2*time.Millisecond {
		t.Errorf("the default is %v", cfg.MinRNRTimer)
	}
	if got := cfg.MinRNRTimer.String(); got != "640µs" {
		t.Errorf("it prints as %q", got)
	}
	if got := cfg.Timeout.String(); got != "67.108864ms" {
		t.Errorf("the timeout prints as %q", got)
	}
}
