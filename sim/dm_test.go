//go:build linux && cgo

package sim_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/sim"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

func (n *node) tryAllocDM(length uint64, logAlign uint32) (*ibverbs.DM, error) {
	attr := &take[ibverbs.AllocDMAttr](n, 1)[0]
	*attr = ibverbs.AllocDMAttr{Length: length, LogAlignReq: logAlign}
	return ibverbs.AllocDM(n.ctx, attr)
}

func (n *node) allocDM(length uint64) *ibverbs.DM {
	n.t.Helper()
	dm, err := n.tryAllocDM(length, 0)
	if err != nil {
		n.t.Fatal(err)
	}
	n.later(func() error { return ibverbs.FreeDM(dm) })
	return dm
}

func (n *node) regDM(dm *ibverbs.DM, off, length uint64) *ibverbs.MR {
	n.t.Helper()
	mr, err := ibverbs.RegDMMR(n.pd, dm, off, length, allAccess|ibverbs.IBV_ACCESS_ZERO_BASED)
	if err != nil {
		n.t.Fatal(err)
	}
	n.later(func() error { return ibverbs.DeregMR(mr) })
	return mr
}

func (n *node) toDM(dm *ibverbs.DM, off uint64, p piece) {
	n.t.Helper()
	if err := ibverbs.MemcpyToDM(dm, off, unsafe.Pointer(&n.buf[p.off]), uint64(p.len)); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) fromDM(p piece, dm *ibverbs.DM, off uint64) {
	n.t.Helper()
	if err := ibverbs.MemcpyFromDM(unsafe.Pointer(&n.buf[p.off]), dm, off, uint64(p.len)); err != nil {
		n.t.Fatal(err)
	}
}

const dmSize = 128 << 10 // of an emulated device

func TestMemoryOnTheDevice(t *testing.T) {
	a, b := pair(t, endConfig{})
	attr := &take[ibverbs.DeviceAttrEx](b.node, 1)[0]
	if err := ibverbs.QueryDeviceEx(b.ctx, nil, attr); err != nil || attr.MaxDMSize != dmSize {
		t.Errorf("the device has %d bytes, %v, want %d", attr.MaxDMSize, err, dmSize)
	}
	other, dm := b.allocDM(100), b.allocDM(10000)
	whole, part := b.regDM(dm, 0, 10000), b.regDM(dm, 4000, 2000)
	fill(b.buf, 7)
	b.toDM(other, 0, piece{500, 100})
	b.toDM(dm, 0, piece{0, 10000})

	// Peers read, write and count in it.
	a.post(request{id: 1, op: ibverbs.IBV_WR_RDMA_READ, pieces: []piece{{0, 10000}}, remote: 0, rkey: whole.RKey})
	a.waitSend(1, ibverbs.IBV_WC_SUCCESS)
	if !bytes.Equal(a.buf[:10000], b.buf[:10000]) {
		t.Error("a peer reads what was not written")
	}
	fill(a.buf, 99)
	a.post(request{id: 2, op: ibverbs.IBV_WR_RDMA_WRITE, pieces: []piece{{0, 2000}}, remote: 0, rkey: part.RKey})
	a.waitSend(2, ibverbs.IBV_WC_SUCCESS)
	b.fromDM(piece{20000, 10000}, dm, 0)
	if !bytes.Equal(b.buf[24000:26000], a.buf[:2000]) || !bytes.Equal(b.buf[20000:24000], b.buf[:4000]) || !bytes.Equal(b.buf[26000:30000], b.buf[6000:10000]) {
		t.Error("a peer writes elsewhere")
	}
	binary.NativeEndian.PutUint64(b.buf, 41)
	b.toDM(dm, 8, piece{0, 8})
	a.post(request{id: 3, op: ibverbs.IBV_WR_ATOMIC_FETCH_AND_ADD, pieces: []piece{{0, 8}}, remote: 8, rkey: whole.RKey, cmp: 1})
	a.waitSend(3, ibverbs.IBV_WC_SUCCESS)
	b.fromDM(piece{0, 8}, dm, 8)
	if got := binary.NativeEndian.Uint64(b.buf); got != 42 {
		t.Errorf("the count is %d, want 42", got)
	}

	// So does its owner.
	*b.wr = ibverbs.SendWR{WRID: 4, Opcode: ibverbs.IBV_WR_RDMA_WRITE, SendFlags: ibverbs.IBV_SEND_SIGNALED}
	b.wr.SGList, b.wr.NumSGE = b.setSGEs(part, []piece{{0, 2000}})
	b.sge[0].Addr = 0
	w := b.wr.WR().RDMA()
	w.RemoteAddr, w.RKey = addr(a.buf)+5000, a.mr.RKey
	if err := ibverbs.PostSend(b.qp, b.wr, (*capi.Ptr[ibverbs.SendWR])(unsafe.Pointer(b.bad))); err != nil {
		t.Fatal(err)
	}
	b.waitSend(4, ibverbs.IBV_WC_SUCCESS)
	if !bytes.Equal(a.buf[5000:7000], b.buf[24000:26000]) {
		t.Error("what is sent from there is not what is there")
	}

	// Nothing beside a region can be reached, and other memory is as it was.
	b.fromDM(piece{30000, 100}, other, 0)
	if !bytes.Equal(b.buf[30000:30100], b.buf[500:600]) {
		t.Error("other memory has changed")
	}
	a.post(request{id: 5, op: ibverbs.IBV_WR_RDMA_READ, pieces: []piece{{0, 8}}, remote: 1996, rkey: part.RKey})
	a.waitSend(5, ibverbs.IBV_WC_REM_ACCESS_ERR)
}

func TestMemoryOnTheDeviceIsRefused(t *testing.T) {
	newFabric(t, nil)
	n := openNode(t, "sim_mlx5_0")
	for _, c := range []struct {
		length   uint64
		logAlign uint32
	}{{0, 0}, {dmSize + 1, 0}, {64, 13}} {
		if _, err := n.tryAllocDM(c.length, c.logAlign); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%d bytes aligned to 2^%d: %v, want EINVAL", c.length, c.logAlign, err)
		}
	}
	dm := n.allocDM(1000)
	for _, c := range []struct {
		off, length uint64
		access      ibverbs.AccessFlags
	}{
		{0, 1000, ibverbs.IBV_ACCESS_LOCAL_WRITE},
		{0, 1001, ibverbs.IBV_ACCESS_ZERO_BASED},
		{1000, 1, ibverbs.IBV_ACCESS_ZERO_BASED},
		{^uint64(0), 8, ibverbs.IBV_ACCESS_ZERO_BASED},
		{0, 8, ibverbs.IBV_ACCESS_ZERO_BASED | ibverbs.IBV_ACCESS_REMOTE_WRITE},
		{0, 8, ibverbs.IBV_ACCESS_ZERO_BASED | ibverbs.IBV_ACCESS_MW_BIND},
	} {
		if _, err := ibverbs.RegDMMR(n.pd, dm, c.off, c.length, c.access); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("registered %d bytes at %d with %v: %v, want EINVAL", c.length, c.off, c.access, err)
		}
	}
	mr, err := ibverbs.RegDMMR(n.pd, dm, 0, 1000, ibverbs.IBV_ACCESS_ZERO_BASED)
	if err != nil {
		t.Fatal(err)
	}
	if err := ibverbs.FreeDM(dm); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("freed while registered: %v, want EBUSY", err)
	}
	if err := ibverbs.DeregMR(mr); err != nil {
		t.Error(err)
	}

	// All who have the device open share what it has.
	again := openNode(t, "sim_mlx5_0")
	if _, err := again.tryAllocDM(dmSize, 0); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("more than there is: %v, want ENOMEM", err)
	}
	rest, err := again.tryAllocDM(dmSize-4096, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.tryAllocDM(8, 0); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("more than there is: %v, want ENOMEM", err)
	}
	if err := ibverbs.FreeDM(rest); err != nil {
		t.Error(err)
	}
	for range 100 {
		dm, err := again.tryAllocDM(dmSize-4096, 12)
		if err != nil {
			t.Fatal(err)
		}
		if err := ibverbs.FreeDM(dm); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := openNode(t, "sim_efa_0").tryAllocDM(8, 0); !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Errorf("on an EFA: %v, want EOPNOTSUPP", err)
	}
}

func TestMemoryOnTheDeviceIsCounted(t *testing.T) {
	newFabric(t, nil)
	before := sim.Leaks()
	ctx := openDevice(t, "sim_mlx5_0")
	if _, err := ibverbs.AllocDM(ctx, &ibverbs.AllocDMAttr{Length: dmSize}); err != nil {
		t.Fatal(err)
	}
	if err := ibverbs.CloseDevice(ctx); err != nil {
		t.Fatal(err)
	}
	if got := sim.Leaks(); got["DM"] != before["DM"]+1 {
		t.Errorf("got %v, before it was %v: want one DM more", got, before)
	}
	openNode(t, "sim_mlx5_0").allocDM(dmSize)
}

func TestDevicesAreImported(t *testing.T) {
	newFabric(t, nil)
	n := openNode(t, "sim_mlx5_0")
	dm := n.allocDM(4096)
	fill(n.buf, 3)
	n.toDM(dm, 0, piece{0, 4096})
	fd, err := unix.Dup(int(ibverbs.ContextCmdFD(n.ctx)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, err := ibverbs.ImportDevice(int32(fd)) // which closes it
	if err != nil {
		t.Fatal(err)
	}
	n.later(func() error { return ibverbs.CloseDevice(ctx) })
	handle := *(*uint32)(unsafe.Add(unsafe.Pointer(n.pd), unsafe.Sizeof(uintptr(0)))) // behind ibv_pd.context
	pd, err := ibverbs.ImportPD(ctx, handle)
	if err != nil {
		t.Fatal(err)
	}
	n.later(func() error { return ibverbs.UnimportPD(pd) })
	same, err := ibverbs.ImportDM(ctx, dm.Handle)
	if err != nil {
		t.Fatal(err)
	}
	n.later(func() error { return ibverbs.UnimportDM(same) })
	n.fromDM(piece{8192, 4096}, same, 0)
	if !bytes.Equal(n.buf[8192:8192+4096], n.buf[:4096]) {
		t.Error("what is imported is not what was written")
	}
	// What is new belongs to both.
	cq, err := ibverbs.CreateCQ(ctx, 16, 0, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	n.later(func() error { return ibverbs.DestroyCQ(cq) })
	mr, err := ibverbs.RegMR(pd, capi.Addr(addr(n.buf)), bufSize, allAccess)
	if err != nil {
		t.Fatal(err)
	}
	n.later(func() error { return ibverbs.DeregMR(mr) })
}

// The kernel keeps a device open for who imported it.
func TestImportedDeviceOutlivesTheOriginal(t *testing.T) {
	newFabric(t, nil)
	first := openDevice(t, "sim_mlx5_0")
	fd, err := unix.Dup(int(ibverbs.ContextCmdFD(first)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, err := ibverbs.ImportDevice(int32(fd))
	if err != nil {
		t.Fatal(err)
	}
	if err := ibverbs.CloseDevice(first); err != nil {
		t.Error(err)
	}
	pd, err := ibverbs.AllocPD(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := ibverbs.DeallocPD(pd); err != nil {
		t.Error(err)
	}
	if err := ibverbs.CloseDevice(ctx); err != nil {
		t.Error(err)
	}
}
