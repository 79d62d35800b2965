package rdma

import (
	"fmt"
	"strconv"
)

// Speed is a data rate in bits per second, after line coding.
type Speed uint64

// Units of [Speed].
const (
	Megabit Speed = 1e6
	Gigabit Speed = 1e9
)

// String returns "400 Gb/s", "2.5 Gb/s", "unknown" for 0.
func (s Speed) String() string {
	if s == 0 {
		return "unknown"
	}
	return strconv.FormatFloat(float64(s)/float64(Gigabit), 'f', -1, 64) + " Gb/s"
}

// laneRates are the data rates of one lane by the code of port attributes:
// SDR, DDR, QDR, FDR10, FDR, EDR, HDR, NDR and XDR. The first eight codes fit
// active_speed, XDR is found in active_speed_ex alone.
var laneRates = map[uint32]Speed{
	1:   2500 * Megabit,
	2:   5 * Gigabit,
	4:   10 * Gigabit,
	8:   10 * Gigabit,
	16:  14 * Gigabit,
	32:  25 * Gigabit,
	64:  50 * Gigabit,
	128: 100 * Gigabit,
	256: 200 * Gigabit,
}

// laneCounts are the numbers of lanes by the code of active_width.
var laneCounts = map[uint8]int{1: 1, 2: 4, 4: 8, 8: 12, 16: 2}

// byteCount formats a size in the largest binary unit that divides it.
func byteCount(n uint64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for ; n != 0 && n%1024 == 0 && i < len(units)-1; i++ {
		n /= 1024
	}
	return fmt.Sprintf("%d %s", n, units[i])
}
