package rdma

import (
	"sort"
	"time"
)

// timeoutCode returns the smallest local ACK timeout that is not shorter than
// d, at most 31; 0 waits for ever, so that only d <= 0 gives it.
// InfiniBand specification, volume 1, C9-140: 4.096 µs × 2ⁿ.
func timeoutCode(d time.Duration) uint8 {
	if d <= 0 {
		return 0
	}
	return uint8(1 + sort.Search(30, func(i int) bool { return timeout(uint8(1+i)) >= d }))
}

// timeout returns the duration of a local ACK timeout, 0 for code 0. Bits
// beyond the field's five are ignored.
func timeout(code uint8) time.Duration {
	if code &= 31; code == 0 {
		return 0
	}
	return 4096 * time.Nanosecond << code
}

// rnrTimers are the durations of the RNR NAK timer field by code, in units of
// 10 µs. InfiniBand specification, volume 1, table 45. Code 0 is the longest.
var rnrTimers = [32]time.Duration{
	65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256,
	384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
}

// rnrTimerCode returns the code of the shortest RNR timer that is not shorter
// than d, and of the longest if all are.
func rnrTimerCode(d time.Duration) uint8 {
	return uint8(1+sort.Search(31, func(i int) bool { return rnrTimer(uint8(1+i)) >= d })) & 31
}

// rnrTimer returns the duration of an RNR timer. Bits beyond the field's five
// are ignored.
func rnrTimer(code uint8) time.Duration {
	return rnrTimers[code&31] * 10 * time.Microsecond
}
