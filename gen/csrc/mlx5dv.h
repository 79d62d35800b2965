
// The inline functions of mlx5dv.h: they fill and read what the device does,
// big-endian. A function hand_x is x.

#include <endian.h>
#include <string.h>

// Bits of op_own: owner 0, solicited 1, format 2-3, opcode 4-7.

static uint8_t hand_mlx5dv_get_cqe_owner(struct mlx5_cqe64 *cqe)
{
	return cqe->op_own & 1;
}

static void hand_mlx5dv_set_cqe_owner(struct mlx5_cqe64 *cqe, uint8_t owner)
{
	cqe->op_own = (cqe->op_own & ~1) | (owner & 1);
}

static uint8_t hand_mlx5dv_get_cqe_se(struct mlx5_cqe64 *cqe)
{
	return cqe->op_own >> 1 & 1;
}

static uint8_t hand_mlx5dv_get_cqe_format(struct mlx5_cqe64 *cqe)
{
	return cqe->op_own >> 2 & 3;
}

static uint8_t hand_mlx5dv_get_cqe_opcode(struct mlx5_cqe64 *cqe)
{
	return cqe->op_own >> 4;
}

// imm is taken as it is: its byte order depends on the opcode.
static void hand_mlx5dv_set_ctrl_seg(struct mlx5_wqe_ctrl_seg *seg, uint16_t pi, uint8_t opcode, uint8_t opmod, uint32_t qpn,
				     uint8_t fm_ce_se, uint8_t ds, uint8_t signature, uint32_t imm)
{
	seg->opmod_idx_opcode = htobe32((uint32_t)opmod << 24 | (uint32_t)pi << 8 | opcode);
	seg->qpn_ds = htobe32(qpn << 8 | ds);
	seg->signature = signature;
	seg->fm_ce_se = fm_ce_se;
	seg->imm = imm;
}

// The whole key is written: with a 32-bit Q_Key its other half is reserved and zero.
static void hand_mlx5dv_set_dgram_seg(struct mlx5_wqe_datagram_seg *seg, uint64_t key, uint32_t dqp_dct, uint8_t ext, uint8_t stat_rate_sl,
				      uint8_t fl_mlid, uint16_t rlid, uint8_t *rmac, uint8_t tclass, uint8_t hop_limit,
				      uint32_t grh_gid_fl, uint8_t *rgid)
{
	struct mlx5_wqe_av *av = &seg->av;

	av->key.dc_key = htobe64(key);
	av->dqp_dct = htobe32((uint32_t)ext << 31 | dqp_dct);
	av->stat_rate_sl = stat_rate_sl;
	av->fl_mlid = fl_mlid;
	av->rlid = htobe16(rlid);
	memcpy(av->rmac, rmac, sizeof(av->rmac));
	av->tclass = tclass;
	av->hop_limit = hop_limit;
	av->grh_gid_fl = htobe32(grh_gid_fl);
	memcpy(av->rgid, rgid, sizeof(av->rgid));
}

static void hand_mlx5dv_set_data_seg(struct mlx5_wqe_data_seg *seg, uint32_t length, uint32_t lkey, uintptr_t address)
{
	seg->byte_count = htobe32(length);
	seg->lkey = htobe32(lkey);
	seg->addr = htobe64(address);
}

// The inline header goes on behind the segment; the caller left room.
static void hand_mlx5dv_set_eth_seg(struct mlx5_wqe_eth_seg *seg, uint8_t cs_flags, uint16_t mss, uint16_t size, uint8_t *header)
{
	seg->cs_flags = cs_flags;
	seg->mss = htobe16(mss);
	seg->inline_hdr_sz = htobe16(size);
	memcpy((uint8_t *)seg + offsetof(struct mlx5_wqe_eth_seg, inline_hdr_start), header, size);
}

// A timestamp more than half the clock's range ahead is one that lies behind.
static uint64_t hand_mlx5dv_ts_to_ns(struct mlx5dv_clock_info *clock, uint64_t timestamp)
{
	uint64_t ahead = (timestamp - clock->last_cycles) & clock->mask;
	uint64_t behind = (clock->last_cycles - timestamp) & clock->mask;

	if (ahead > clock->mask / 2)
		return clock->nsec - ((behind * clock->mult - clock->frac) >> clock->shift);
	return clock->nsec + ((ahead * clock->mult + clock->frac) >> clock->shift);
}
