package fabric

import (
	"slices"
	"syscall"
)

// memoryPage is the least that is given away of a device's own memory.
const memoryPage = 4096

// TakeMemory takes pages of the device's own memory, one behind the other, and
// returns the number of the first.
func (d *Device) TakeMemory(pages int) (first int, err error) {
	if d.memory == nil {
		d.memory = make([]bool, d.Limits.MaxDM/memoryPage)
	}
	for ; first+pages <= len(d.memory); first++ {
		if want := d.memory[first : first+pages]; !slices.Contains(want, true) {
			for i := range want {
				want[i] = true
			}
			return first, nil
		}
	}
	return 0, syscall.ENOMEM
}

// FreeMemory gives pages back.
func (d *Device) FreeMemory(first, pages int) { clear(d.memory[first : first+pages]) }
