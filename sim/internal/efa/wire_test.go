package efa

import (
	"testing"
	"unsafe"
)

// There is no header of these for programs: the numbers are those of the structs
// in rdma-core's providers/efa/efa_io_defs.h.
func TestFormatsAreThoseOfTheLibrary(t *testing.T) {
	var (
		wqe  txWQE
		buf  txBufDesc
		rdma rdmaReq
		rx   rxDesc
		c    rxCDescEx
	)
	for _, f := range []struct {
		name      string
		got, want uintptr
	}{
		{"efa_io_tx_wqe", unsafe.Sizeof(wqe), SendSize},
		{"efa_io_tx_wqe.data", unsafe.Offsetof(wqe.data), 32},
		{"efa_io_tx_meta_desc", unsafe.Sizeof(wqe.txMetaDesc), 32},
		{"efa_io_tx_meta_desc.ctrl1", unsafe.Offsetof(wqe.ctrl1), 2},
		{"efa_io_tx_meta_desc.ctrl2", unsafe.Offsetof(wqe.ctrl2), 3},
		{"efa_io_tx_meta_desc.dest_qp_num", unsafe.Offsetof(wqe.destQPNum), 4},
		{"efa_io_tx_meta_desc.length", unsafe.Offsetof(wqe.length), 6},
		{"efa_io_tx_meta_desc.immediate_data", unsafe.Offsetof(wqe.immediateData), 8},
		{"efa_io_tx_meta_desc.ah", unsafe.Offsetof(wqe.ah), 12},
		{"efa_io_tx_meta_desc.qkey", unsafe.Offsetof(wqe.qkey), 16},
		{"efa_io_tx_buf_desc", unsafe.Sizeof(buf), 16},
		{"efa_io_tx_buf_desc.lkey", unsafe.Offsetof(buf.lkey), 4},
		{"efa_io_tx_buf_desc.buf_addr_lo", unsafe.Offsetof(buf.bufAddr), 8},
		{"EFA_IO_TX_DESC_NUM_BUFS", unsafe.Sizeof(*wqe.sgl()), InlineSize},
		{"efa_io_rdma_req", unsafe.Sizeof(rdma), 32},
		{"efa_io_rdma_req.local_mem", unsafe.Offsetof(rdma.localMem), 16},
		{"efa_io_remote_mem_addr.rkey", unsafe.Offsetof(rdma.remoteMem.rkey), 4},
		{"efa_io_remote_mem_addr.buf_addr_lo", unsafe.Offsetof(rdma.remoteMem.bufAddr), 8},
		{"efa_io_rx_desc", unsafe.Sizeof(rx), RecvSize},
		{"efa_io_rx_desc.req_id", unsafe.Offsetof(rx.reqID), 8},
		{"efa_io_rx_desc.length", unsafe.Offsetof(rx.length), 10},
		{"efa_io_rx_desc.lkey_ctrl", unsafe.Offsetof(rx.lkeyCtrl), 12},
		{"efa_io_rx_cdesc", unsafe.Sizeof(c.rxCDesc), EntrySize},
		{"efa_io_cdesc_common.status", unsafe.Offsetof(c.status), 2},
		{"efa_io_cdesc_common.flags", unsafe.Offsetof(c.flags), 3},
		{"efa_io_cdesc_common.qp_num", unsafe.Offsetof(c.qpNum), 4},
		{"efa_io_rx_cdesc.length", unsafe.Offsetof(c.length), 6},
		{"efa_io_rx_cdesc.ah", unsafe.Offsetof(c.ah), 8},
		{"efa_io_rx_cdesc.src_qp_num", unsafe.Offsetof(c.srcQPNum), 10},
		{"efa_io_rx_cdesc.imm", unsafe.Offsetof(c.imm), 12},
		{"efa_io_rx_cdesc_ex", unsafe.Sizeof(c), EntrySizeExt},
		{"efa_io_rx_cdesc_ex.u", unsafe.Offsetof(c.tail), 16},
	} {
		if f.got != f.want {
			t.Errorf("%s: %d, want %d", f.name, f.got, f.want)
		}
	}
}
