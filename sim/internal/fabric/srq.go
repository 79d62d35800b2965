package fabric

// SRQ is a shared receive queue. Only those of extended connections are named
// by requests.
type SRQ struct {
	Num  uint32 // given by Device.AddSRQ
	PD   *PD
	XRCD *XRCD // nil for other connections' queues
	Receives
}

// AddSRQ gives a shared queue its number and makes it known.
func (d *Device) AddSRQ(s *SRQ) {
	for s.Num == 0 || d.srqs[s.Num] != nil {
		d.lastSRQ = (d.lastSRQ + 1) & 0xffffff
		s.Num = d.lastSRQ
	}
	d.srqs[s.Num] = s
}

// RemoveSRQ forgets a shared queue.
func (d *Device) RemoveSRQ(s *SRQ) { delete(d.srqs, s.Num) }

// XRCD is the domain of extended connections: a queue pair leads to the shared
// queues in its own. A domain with a file is the same for all who open it with
// that file.
type XRCD struct {
	file  FileID
	opens int
}

// FileID tells a file from all others; the zero value is none.
type FileID struct{ Device, Inode uint64 }

// XRCD returns the domain of a file, nil if there is none.
func (d *Device) XRCD(file FileID) *XRCD { return d.xrcds[file] }

// OpenXRCD opens the domain of a file, or a new one without.
func (d *Device) OpenXRCD(file FileID) *XRCD {
	x := d.xrcds[file]
	if x == nil {
		x = &XRCD{file: file}
		if file != (FileID{}) {
			d.xrcds[file] = x
		}
	}
	x.opens++
	return x
}

// CloseXRCD ends one opening.
func (d *Device) CloseXRCD(x *XRCD) {
	if x.opens--; x.opens == 0 {
		delete(d.xrcds, x.file)
	}
}
