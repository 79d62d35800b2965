//go:build linux && cgo

package uverbs

import (
	"math/bits"
	"syscall"

	"github.com/goverbs/goverbs/sim/internal/fabric"
	"github.com/goverbs/goverbs/sim/internal/mlx5"
	"github.com/goverbs/goverbs/sim/internal/uapi"
)

// What the firmware refuses it answers with a status and a syndrome; the caller
// learns that it did by EREMOTEIO.
const (
	firmwareBadParameter = 0x3
	firmwareLimit        = 0x8
)

// refuse answers a command of the firmware with a status.
func refuse(r *uapi.Request, out uint16, status uint8) error {
	uapi.Out(r, out, mlx5.Refusal{Status: status})
	return syscall.EREMOTEIO
}

// logMaxPieces is how many pieces an indirect key has room for at most: as many
// as the kernel calls these devices' max_fast_reg_page_list_len.
const logMaxPieces = 16

// createDEVX has the firmware make an object. The only ones that it knows are
// indirect memory keys.
func (c *Context) createDEVX(r *uapi.Request) error {
	in := uapi.In[mlx5.CreateMKey](r, uapi.AttrMlx5DEVXIn)
	if in.Opcode.Get() != mlx5.OpCreateMKey {
		return syscall.EOPNOTSUPP
	}
	k := &in.Context
	p, pieces := c.pdOf(k.PD()), k.TranslationsOctwordSize.Get()
	if p == nil || pieces > 1<<logMaxPieces {
		return refuse(r, uapi.AttrMlx5DEVXOut, firmwareBadParameter)
	}
	m := &mr{needs: needs{p}, MR: fabric.MR{PD: p.PD, Key: uint32(k.Variant()), Indirect: true, MaxPieces: int(pieces), IOVA: k.StartAddr.Get(), Len: k.Len.Get(),
		Free: k.IsFree(), MayInvalidate: k.MayInvalidate()}}
	if !c.device.room(kindMR) || c.device.AddMR(&m.MR, true) != nil {
		return refuse(r, uapi.AttrMlx5DEVXOut, firmwareLimit)
	}
	var out mlx5.CreateMKeyOut
	out.MKeyIndex.Set(m.Key >> 8)
	uapi.Out(r, uapi.AttrMlx5DEVXOut, out)
	r.SetHandle(uapi.AttrMlx5DEVXHandle, c.add(m))
	return nil
}

// pdOf returns the protection domain that the device has by that number, nil if
// there is none.
func (c *Context) pdOf(number uint32) *pd {
	for _, o := range c.objects.objects {
		if p, ok := o.(*pd); ok && p.Num == number {
			return p
		}
	}
	return nil
}

func (c *Context) destroyDEVX(r *uapi.Request) error {
	h, _ := r.Handle(uapi.AttrMlx5DEVXHandle)
	_, err := take[*mr](c, h)
	return err
}

// generalDEVX asks the firmware. The only question that it knows is for the
// device's capabilities.
func (c *Context) generalDEVX(r *uapi.Request) error {
	in := uapi.In[mlx5.QueryHCACap](r, uapi.AttrMlx5GeneralIn)
	if in.Opcode.Get() != mlx5.OpQueryHCACap {
		return syscall.EINVAL
	}
	caps, ok := c.capabilities(in.OpMod.Get() >> 1) // the last bit chooses between what can be and what is
	if !ok {
		return refuse(r, uapi.AttrMlx5GeneralOut, firmwareBadParameter)
	}
	var out mlx5.QueryHCACapOut
	for _, f := range caps {
		f.put(out.Caps[:])
	}
	uapi.Out(r, uapi.AttrMlx5GeneralOut, out)
	return nil
}

// capability is a field of a page of capabilities: where it begins, as a byte
// and a bit that counts from the most significant, and how many bits it has.
type capability struct {
	at, bit, width int
	value          uint32
}

// put writes the field.
func (f capability) put(page []byte) {
	for i := range f.width {
		if at := f.at*8 + f.bit + i; f.value>>(f.width-1-i)&1 != 0 {
			page[at/8] |= 0x80 >> (at % 8)
		}
	}
}

// Pages of capabilities.
const (
	capsGeneral      = 0x0
	capsODP          = 0x2
	capsAtomic       = 0x3
	capsDeviceMemory = 0xf
	lastCaps         = 0x3f
)

// capabilities returns what a page says beyond zeros. Names and places are those
// of mlx5_ifc.h. What is not emulated is not said.
func (c *Context) capabilities(page uint16) (fields []capability, ok bool) {
	l := &c.device.Limits
	log := func(n int) uint32 { return uint32(bits.Len(uint(n)) - 1) }
	flag := func(b bool) uint32 {
		if b {
			return 1
		}
		return 0
	}
	atomics := log(max(l.MaxRdAtomic, 1))
	switch page {
	case capsGeneral:
		return []capability{
			{0x11, 0, 8, log(l.MaxQPWR)}, // log_max_qp_sz
			{0x13, 3, 5, log(l.MaxQP)},   // log_max_qp
			{0x1d, 0, 1, 1},              // relaxed_ordering_write
			{0x1d, 2, 6, log(l.MaxMR)},   // log_max_mkey
			{0x1f, 0, 1, 1},              // dump_fill_mkey
			{0x21, 1, 7, 64},             // log_max_mrw_sz
			{0x23, 1, 1, 1},              // null_mkey
			{0x23, 2, 6, logMaxPieces},   // log_max_klm_list_size
			{0x25, 2, 6, atomics},        // log_max_ra_req_dc
			{0x27, 2, 6, atomics},        // log_max_ra_res_dc
			{0x29, 2, 6, atomics},        // log_max_ra_req_qp
			{0x2b, 2, 6, atomics},        // log_max_ra_res_qp
			{0x3f, 4, 4, uapi.Mlx5CQEVersionUIndex},
			{0x42, 5, 1, 1}, // sctr_data_cqe
			{0x43, 2, 1, 1}, // dct
			{0x43, 5, 1, flag(c.device.Ports[0].LinkLayer == fabric.LinkEthernet)}, // roce
			{0x43, 6, 1, 1},                // atomic
			{0x44, 7, 1, flag(l.OnDemand)}, // pg
		}, true
	case capsODP:
		if !l.OnDemand {
			return nil, true
		}
		const send, recv, write, all = 1 << 31, 1 << 30, 1 << 29, 0x3f << 26
		return []capability{
			{0x08, 0, 1, 1}, // sig
			{0x10, 0, 32, all},
			{0x14, 0, 32, send | recv | write},
			{0x18, 0, 32, send | recv},
			{0x1c, 0, 32, all},
			{0x20, 0, 32, all}, // DC
		}, true
	case capsAtomic:
		const compareSwap, fetchAdd, maskedCompareSwap, maskedFetchAdd = 1 << 0, 1 << 1, 1 << 2, 1 << 3
		return []capability{
			{0x08, 0, 2, 1}, // atomic_req_8B_endianness_mode: the host's
			{0x08, 6, 1, 1},
			{0x12, 0, 16, compareSwap | fetchAdd | maskedCompareSwap | maskedFetchAdd},
			{0x16, 0, 16, 4 | 8}, // atomic_size_qp
			{0x1a, 0, 16, 4 | 8}, // atomic_size_dc
		}, true
	case capsDeviceMemory:
		return []capability{
			{0x00, 0, 1, flag(l.MaxDM > 0)}, // memic
			{0x05, 3, 5, dmLogUnit},         // log_min_memic_alloc_size
			{0x07, 0, 8, dmLogMaxAlign - dmLogUnit},
			{0x10, 0, 32, uint32(l.MaxDM)},
			{0x14, 0, 32, uint32(l.MaxDM)},
		}, true
	}
	return nil, page <= lastCaps
}
