//go:build linux && cgo

// A provider of the shape and memory traffic of a device's: 64-byte entries in
// a ring, written by post and read by poll.

#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "fake.h"
#include "zz_abi.h"

#define RING 4096

struct entry {
	uint32_t opcode, qpn, flags, imm;
	uint64_t remote_addr;
	uint32_t rkey, num_sge;
	uint32_t length, lkey;
	uint64_t addr, wr_id, pad;
};

struct ring {
	struct ibv_qp_ex qp;
	struct ibv_cq_ex cq;
	struct ibv_context context;
	uint32_t head, tail;
	int result, error; // of the next call, if result is not 0
	int polling;       // between start_poll and end_poll
	int misused;       // calls of the extended poll that came out of turn
	struct entry *cur, *done;
	struct entry entries[RING];
};

static int answer(struct ring *r)
{
	int result = r->result;

	r->result = 0;
	if (result)
		errno = r->error;
	return result;
}

static struct entry *next(struct ring *r) { return &r->entries[r->head++ % RING]; }

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct ring *r = (struct ring *)qp;
	int ret = answer(r);

	if (ret) {
		*bad = wr;
		return ret;
	}
	for (; wr; wr = wr->next) {
		struct entry *e = next(r);

		if (wr->num_sge > 1) {
			r->head--;
			*bad = wr;
			return EINVAL;
		}
		e->opcode = wr->opcode;
		e->qpn = qp->qp_num;
		e->flags = wr->send_flags;
		e->imm = wr->imm_data;
		e->remote_addr = htobe64(wr->wr.rdma.remote_addr);
		e->rkey = htobe32(wr->wr.rdma.rkey);
		e->num_sge = wr->num_sge;
		e->wr_id = wr->wr_id;
		if (wr->num_sge) {
			e->length = htobe32(wr->sg_list->length);
			e->lkey = htobe32(wr->sg_list->lkey);
			e->addr = htobe64(wr->sg_list->addr);
		}
	}
	__asm__ __volatile__("" ::: "memory"); // the doorbell
	return 0;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int ret = answer((struct ring *)qp);

	if (ret)
		*bad = wr;
	return ret;
}

static struct ring *of_cq(void *cq) { return (struct ring *)((char *)cq - offsetof(struct ring, cq)); }

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	struct ring *r = of_cq(cq);
	int i, ret = answer(r);

	if (ret)
		return ret;
	for (i = 0; i < n && r->tail != r->head; i++) {
		struct entry *e = &r->entries[r->tail++ % RING];

		wc[i].wr_id = e->wr_id;
		wc[i].status = IBV_WC_SUCCESS;
		wc[i].opcode = IBV_WC_SEND;
		wc[i].byte_len = be32toh(e->length);
		wc[i].imm_data = e->imm;
		wc[i].qp_num = e->qpn;
		wc[i].wc_flags = e->imm ? IBV_WC_WITH_IMM : 0;
	}
	return i;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited) { return answer(of_cq(cq)); }

// The extended interface: one entry between a builder and the next.

static void wr_start(struct ibv_qp_ex *qp) { ((struct ring *)qp)->cur = 0; }

static struct entry *wr_begin(struct ibv_qp_ex *qp, uint32_t opcode)
{
	struct ring *r = (struct ring *)qp;
	struct entry *e = r->cur = next(r);

	memset(e, 0, sizeof(*e));
	e->opcode = opcode;
	e->wr_id = qp->wr_id;
	e->flags = qp->wr_flags;
	e->qpn = qp->qp_base.qp_num;
	return e;
}

static void wr_send(struct ibv_qp_ex *qp) { wr_begin(qp, IBV_WR_SEND); }

static void wr_send_imm(struct ibv_qp_ex *qp, uint32_t imm) { wr_begin(qp, IBV_WR_SEND_WITH_IMM)->imm = imm; }

static void wr_rdma_write(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr)
{
	struct entry *e = wr_begin(qp, IBV_WR_RDMA_WRITE);

	e->rkey = htobe32(rkey);
	e->remote_addr = htobe64(addr);
}

static void wr_set_sge(struct ibv_qp_ex *qp, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct entry *e = ((struct ring *)qp)->cur;

	e->num_sge = 1;
	e->lkey = htobe32(lkey);
	e->addr = htobe64(addr);
	e->length = htobe32(length);
}

static void wr_set_sge_list(struct ibv_qp_ex *qp, size_t n, const struct ibv_sge *sge)
{
	if (n)
		wr_set_sge(qp, sge->lkey, sge->addr, sge->length);
}

static int wr_complete(struct ibv_qp_ex *qp)
{
	__asm__ __volatile__("" ::: "memory");
	return answer((struct ring *)qp);
}

static void wr_abort(struct ibv_qp_ex *qp) { ((struct ring *)qp)->head = ((struct ring *)qp)->tail; }

// Only between a start that succeeded and its end there is something to poll: a
// library holds the queue's lock then.
static int take(struct ring *r)
{
	struct ibv_cq_ex *cq = &r->cq;

	if (r->tail == r->head)
		return ENOENT;
	r->done = &r->entries[r->tail++ % RING];
	cq->wr_id = r->done->wr_id;
	cq->status = IBV_WC_SUCCESS;
	return 0;
}

static int start_poll(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr)
{
	struct ring *r = of_cq(cq);
	int ret = answer(r);

	r->misused += r->polling;
	if (!ret)
		ret = take(r);
	r->polling = !ret;
	return ret;
}

static int next_poll(struct ibv_cq_ex *cq)
{
	struct ring *r = of_cq(cq);
	int ret = answer(r);

	r->misused += !r->polling;
	return ret ? ret : take(r);
}

static void end_poll(struct ibv_cq_ex *cq)
{
	struct ring *r = of_cq(cq);

	r->misused += !r->polling;
	r->polling = 0;
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *cq) { return IBV_WC_SEND; }
static uint32_t read_vendor_err(struct ibv_cq_ex *cq) { return 0; }
static unsigned read_wc_flags(struct ibv_cq_ex *cq) { return of_cq(cq)->done->imm ? IBV_WC_WITH_IMM : 0; }
static uint32_t read_imm_data(struct ibv_cq_ex *cq) { return of_cq(cq)->done->imm; }
static uint32_t read_byte_len(struct ibv_cq_ex *cq) { return be32toh(of_cq(cq)->done->length); }
static uint32_t read_qp_num(struct ibv_cq_ex *cq) { return of_cq(cq)->done->qpn; }

uint8_t *ring_new(void)
{
	struct ring *r = calloc(1, sizeof(*r));

	if (!r)
		return 0;
	r->context.ops.post_send = post_send;
	r->context.ops.post_recv = post_recv;
	r->context.ops.poll_cq = poll_cq;
	r->context.ops.req_notify_cq = req_notify_cq;
	r->qp.qp_base.context = r->cq.context = &r->context;
	r->qp.qp_base.qp_num = 42;
	r->qp.qp_base.state = IBV_QPS_RTS;
	r->qp.wr_start = wr_start;
	r->qp.wr_complete = wr_complete;
	r->qp.wr_abort = wr_abort;
	r->qp.wr_send = wr_send;
	r->qp.wr_send_imm = wr_send_imm;
	r->qp.wr_rdma_write = wr_rdma_write;
	r->qp.wr_set_sge = wr_set_sge;
	r->qp.wr_set_sge_list = wr_set_sge_list;
	r->cq.cqe = RING;
	r->cq.start_poll = start_poll;
	r->cq.next_poll = next_poll;
	r->cq.end_poll = end_poll;
	r->cq.read_opcode = read_opcode;
	r->cq.read_vendor_err = read_vendor_err;
	r->cq.read_wc_flags = read_wc_flags;
	r->cq.read_imm_data = read_imm_data;
	r->cq.read_byte_len = read_byte_len;
	r->cq.read_qp_num = read_qp_num;
	return (uint8_t *)r;
}

void ring_free(uint8_t *ring) { free(ring); }
uint8_t *ring_qp(uint8_t *ring) { return (uint8_t *)&((struct ring *)ring)->qp.qp_base; }
uint8_t *ring_cq(uint8_t *ring) { return (uint8_t *)&((struct ring *)ring)->cq; }
uint8_t *ring_qp_ex(uint8_t *ring) { return (uint8_t *)&((struct ring *)ring)->qp; }
uint8_t *ring_cq_ex(uint8_t *ring) { return (uint8_t *)&((struct ring *)ring)->cq; }

uint32_t *ring_head(uint8_t *ring) { return &((struct ring *)ring)->head; }
uint32_t *ring_tail(uint8_t *ring) { return &((struct ring *)ring)->tail; }

void ring_answer(uint8_t *ring, int32_t result, int32_t error)
{
	((struct ring *)ring)->result = result;
	((struct ring *)ring)->error = error;
}

int32_t ring_misused(uint8_t *ring) { return ((struct ring *)ring)->misused + ((struct ring *)ring)->polling; }

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

// What a C program does, for the benchmarks: nanoseconds of one round.
double ring_post_loop(uint8_t *ring, uint8_t *wrs, uint8_t *sges, int32_t n, int32_t fill, int64_t rounds)
{
	struct ibv_qp *qp = &((struct ring *)ring)->qp.qp_base;
	struct ibv_send_wr *wr = (void *)wrs, *bad;
	struct ibv_sge *sge = (void *)sges;
	double begin = now();

	for (int64_t k = 0; k < rounds; k++) {
		for (int i = 0; fill && i < n; i++) {
			sge[i].addr = 4096 * i;
			sge[i].length = 4096;
			sge[i].lkey = 7;
			wr[i].wr_id = i;
			wr[i].next = i + 1 < n ? &wr[i + 1] : 0;
			wr[i].sg_list = &sge[i];
			wr[i].num_sge = 1;
			wr[i].opcode = IBV_WR_RDMA_WRITE;
			wr[i].send_flags = IBV_SEND_SIGNALED;
			wr[i].wr.rdma.remote_addr = 4096 * i;
			wr[i].wr.rdma.rkey = 9;
		}
		qp->context->ops.post_send(qp, wr, &bad);
	}
	return (now() - begin) / rounds;
}

double ring_batch_loop(uint8_t *ring, uint8_t *sges, int32_t n, int64_t rounds)
{
	struct ibv_qp_ex *qp = &((struct ring *)ring)->qp;
	struct ibv_sge *sge = (void *)sges;
	double begin = now();

	for (int64_t k = 0; k < rounds; k++) {
		qp->wr_start(qp);
		for (int i = 0; i < n; i++) {
			sge[i].addr = 4096 * i;
			sge[i].length = 4096;
			sge[i].lkey = 7;
			qp->wr_id = i;
			qp->wr_flags = IBV_SEND_SIGNALED;
			qp->wr_rdma_write(qp, 9, 4096 * i);
			qp->wr_set_sge(qp, sge[i].lkey, sge[i].addr, sge[i].length);
		}
		qp->wr_complete(qp);
	}
	return (now() - begin) / rounds;
}

double ring_poll_loop(uint8_t *ring, uint8_t *wc, int32_t n, int64_t rounds)
{
	struct ring *r = (struct ring *)ring;
	struct ibv_cq *cq = (struct ibv_cq *)&r->cq;
	double begin = now();

	for (int64_t k = 0; k < rounds; k++) {
		r->head = r->tail + n;
		r->context.ops.poll_cq(cq, n, (void *)wc);
	}
	return (now() - begin) / rounds;
}
