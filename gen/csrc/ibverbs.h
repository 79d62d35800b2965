
// The inline verbs that follow no schema, and the batches that cross from Go
// into C once. A function hand_x is ibv_x; fn is the library function that it
// falls back to.

#include <sched.h>
#include <string.h>
#include <time.h>

static int hand_ibv_query_port(__typeof__(&ibv_query_port) fn, struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr)
{
	if (ZZ_HAS_OP(context, query_port))
		return zz_verbs_context(context)->query_port(context, port, attr, sizeof(*attr));
	memset(attr, 0, sizeof(*attr));
	return fn(context, port, (void *)attr);
}

static int hand_ibv_query_device_ex(__typeof__(&ibv_query_device) fn, struct ibv_context *context,
				    const struct ibv_query_device_ex_input *input, struct ibv_device_attr_ex *attr)
{
	if (input && input->comp_mask)
		return EINVAL;
	if (ZZ_HAS_OP(context, query_device_ex)) {
		int ret = zz_verbs_context(context)->query_device_ex(context, input, attr, sizeof(*attr));

		if (ret != EOPNOTSUPP && ret != ENOSYS)
			return ret;
	}
	memset(attr, 0, sizeof(*attr));
	return fn(context, &attr->orig_attr);
}

// Only ibv_reg_mr_iova2 takes every access flag; the headers call the older
// functions where the flags are constants that need no more.
static struct ibv_mr *hand_ibv_reg_mr(__typeof__(&ibv_reg_mr_iova2) fn, struct ibv_pd *pd, void *addr, size_t length, unsigned access)
{
	return fn(pd, addr, length, (uintptr_t)addr, access);
}

static struct ibv_mr *hand_ibv_reg_mr_iova(__typeof__(&ibv_reg_mr_iova2) fn, struct ibv_pd *pd, void *addr, size_t length,
					   uint64_t iova, unsigned access)
{
	return fn(pd, addr, length, iova, access);
}

static struct ibv_qp *hand_ibv_create_qp_ex(__typeof__(&ibv_create_qp) fn, struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	if (attr->comp_mask == IBV_QP_INIT_ATTR_PD)
		return fn(attr->pd, (struct ibv_qp_init_attr *)attr);
	if (ZZ_HAS_OP(context, create_qp_ex))
		return zz_verbs_context(context)->create_qp_ex(context, attr);
	errno = EOPNOTSUPP;
	return 0;
}

static struct ibv_srq *hand_ibv_create_srq_ex(__typeof__(&ibv_create_srq) fn, struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
	uint32_t mask = attr->comp_mask;

	if (mask == IBV_SRQ_INIT_ATTR_PD ||
	    (mask == (IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE) && attr->srq_type == IBV_SRQT_BASIC))
		return fn(attr->pd, (struct ibv_srq_init_attr *)attr);
	if (ZZ_HAS_OP(context, create_srq_ex))
		return zz_verbs_context(context)->create_srq_ex(context, attr);
	errno = EOPNOTSUPP;
	return 0;
}

// The header, not the provider, prepares what a work queue needs for events.
static struct ibv_wq *hand_ibv_create_wq(struct ibv_context *context, struct ibv_wq_init_attr *attr)
{
	struct ibv_wq *wq;

	if (!ZZ_HAS_OP(context, create_wq)) {
		errno = EOPNOTSUPP;
		return 0;
	}
	wq = zz_verbs_context(context)->create_wq(context, attr);
	if (wq) {
		wq->wq_context = attr->wq_context;
		wq->events_completed = 0;
		pthread_mutex_init(&wq->mutex, 0);
		pthread_cond_init(&wq->cond, 0);
	}
	return wq;
}

// A domain that was opened belongs to a provider that can close it.
static int hand_ibv_close_xrcd(struct ibv_xrcd *xrcd)
{
	return zz_verbs_context(xrcd->context)->close_xrcd(xrcd);
}

static struct ibv_mw *hand_ibv_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	if (!pd->context->ops.alloc_mw) {
		errno = EOPNOTSUPP;
		return 0;
	}
	return pd->context->ops.alloc_mw(pd, type);
}

static int hand_ibv_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	struct ibv_mw_bind_info *info = &bind->bind_info;

	if (mw->type != IBV_MW_TYPE_1 || (!info->mr && (info->addr || info->length)))
		return EINVAL;
	if (info->mr && info->mr->pd != mw->pd)
		return EPERM;
	return mw->context->ops.bind_mw(qp, mw, bind);
}

static int hand_ibv_post_srq_ops(struct ibv_srq *srq, struct ibv_ops_wr *op, struct ibv_ops_wr **bad)
{
	if (!ZZ_HAS_OP(srq->context, post_srq_ops)) {
		*bad = op;
		return EOPNOTSUPP;
	}
	return zz_verbs_context(srq->context)->post_srq_ops(srq, op, bad);
}

// A queue pair has the operations that it was created with.
#define BATCH_CALL(op, ...)                    \
	do {                                   \
		if (!qp->op)                   \
			return EOPNOTSUPP;     \
		qp->op(qp, ##__VA_ARGS__);     \
	} while (0)

// Where in a chain of n a request is; 0 if the provider did not say.
#define BATCH_INDEX(chain, wr, n) ((wr) >= (chain) && (wr) < (chain) + (n) ? (uint32_t)((wr) - (chain)) : 0)

// The scatter list of a request, or its bytes if they go with it.
static int batch_data(struct ibv_qp_ex *qp, const struct batch_wr *wr)
{
	struct ibv_data_buf buf[32];

	if (!(wr->flags & IBV_SEND_INLINE)) {
		if (wr->num_sge == 1)
			BATCH_CALL(wr_set_sge, wr->sg_list->lkey, wr->sg_list->addr, wr->sg_list->length);
		else
			BATCH_CALL(wr_set_sge_list, wr->num_sge, wr->sg_list);
		return 0;
	}
	if (wr->num_sge > sizeof(buf) / sizeof(buf[0]))
		return EINVAL;
	for (uint32_t i = 0; i < wr->num_sge; i++) {
		buf[i].addr = (void *)(uintptr_t)wr->sg_list[i].addr;
		buf[i].length = wr->sg_list[i].length;
	}
	if (wr->num_sge == 1)
		BATCH_CALL(wr_set_inline_data, buf[0].addr, buf[0].length);
	else
		BATCH_CALL(wr_set_inline_data_list, wr->num_sge, buf);
	return 0;
}

static struct ibv_mw_bind_info batch_bind_info(const struct batch_wr *wr)
{
	return (struct ibv_mw_bind_info){
		.mr = wr->mr,
		.addr = wr->mw_addr,
		.length = wr->mw_length,
		.mw_access_flags = wr->mw_access,
	};
}

// How the request of a dynamically connected initiator names its target: a
// call of libmlx5, which stands in an object of its own.
typedef void batch_set_dc_addr(void *qp, struct ibv_ah *ah, uint32_t dctn, uint64_t key);

static int batch_one(struct ibv_qp_ex *qp, const struct batch_dc *dc, const struct batch_wr *wr)
{
	qp->wr_id = wr->wr_id;
	qp->wr_flags = wr->flags;
	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE:
		BATCH_CALL(wr_rdma_write, wr->rkey, wr->remote_addr);
		break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		BATCH_CALL(wr_rdma_write_imm, wr->rkey, wr->remote_addr, wr->imm_data);
		break;
	case IBV_WR_RDMA_READ:
		BATCH_CALL(wr_rdma_read, wr->rkey, wr->remote_addr);
		break;
	case IBV_WR_SEND:
		BATCH_CALL(wr_send);
		break;
	case IBV_WR_SEND_WITH_IMM:
		BATCH_CALL(wr_send_imm, wr->imm_data);
		break;
	case IBV_WR_SEND_WITH_INV:
		BATCH_CALL(wr_send_inv, wr->invalidate_rkey);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		BATCH_CALL(wr_atomic_cmp_swp, wr->rkey, wr->remote_addr, wr->compare_add, wr->swap);
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		BATCH_CALL(wr_atomic_fetch_add, wr->rkey, wr->remote_addr, wr->compare_add);
		break;
	case IBV_WR_LOCAL_INV:
		BATCH_CALL(wr_local_inv, wr->invalidate_rkey);
		return 0; // has neither data nor address
	case IBV_WR_BIND_MW: {
		struct ibv_mw_bind_info info = batch_bind_info(wr);

		BATCH_CALL(wr_bind_mw, wr->mw, wr->rkey, &info);
		return 0;
	}
	default:
		return EINVAL;
	}
	if (dc)
		((batch_set_dc_addr *)dc->set_addr)(dc->qp, wr->ah, wr->remote_qpn, wr->remote_key);
	else if (wr->ah)
		BATCH_CALL(wr_set_ud_addr, wr->ah, wr->remote_qpn, wr->remote_key);
	if (wr->remote_srqn)
		BATCH_CALL(wr_set_xrc_srqn, wr->remote_srqn);
	return batch_data(qp, wr);
}

// Posts all n requests or none; *bad is the one that was refused, or n if the
// provider refused them together. dc is null but for initiators.
static int hand_batch_post(struct ibv_qp_ex *qp, const struct batch_dc *dc, const struct batch_wr *wr, uint32_t n, uint32_t *bad)
{
	qp->wr_start(qp);
	for (uint32_t i = 0; i < n; i++) {
		int ret = batch_one(qp, dc, &wr[i]);

		if (ret) {
			qp->wr_abort(qp);
			*bad = i;
			return ret;
		}
	}
	*bad = n;
	return qp->wr_complete(qp);
}

// A request as the older interface has it.
static void chain_one(struct ibv_send_wr *to, const struct batch_wr *wr, struct ibv_send_wr *next)
{
	to->wr_id = wr->wr_id;
	to->next = next;
	to->sg_list = wr->sg_list;
	to->num_sge = wr->num_sge;
	to->opcode = wr->opcode;
	to->send_flags = wr->flags;
	switch (wr->opcode) {
	case IBV_WR_SEND_WITH_INV:
	case IBV_WR_LOCAL_INV:
		to->invalidate_rkey = wr->invalidate_rkey;
		break;
	default:
		to->imm_data = wr->imm_data;
	}
	switch (wr->opcode) {
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		to->wr.atomic.remote_addr = wr->remote_addr;
		to->wr.atomic.compare_add = wr->compare_add;
		to->wr.atomic.swap = wr->swap;
		to->wr.atomic.rkey = wr->rkey;
		break;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_RDMA_READ:
		to->wr.rdma.remote_addr = wr->remote_addr;
		to->wr.rdma.rkey = wr->rkey;
		break;
	case IBV_WR_BIND_MW:
		to->num_sge = 0;
		to->bind_mw.mw = wr->mw;
		to->bind_mw.rkey = wr->rkey;
		to->bind_mw.bind_info = batch_bind_info(wr);
		break;
	default:
		to->wr.ud.ah = wr->ah;
		to->wr.ud.remote_qpn = wr->remote_qpn;
		to->wr.ud.remote_qkey = wr->remote_key;
	}
	to->qp_type.xrc.remote_srqn = wr->remote_srqn;
}

// Posts n requests through the older interface; chain has room for them. *bad
// is how many were accepted before one was refused.
static int hand_batch_send(struct ibv_qp *qp, const struct batch_wr *wr, uint32_t n, struct ibv_send_wr *chain, uint32_t *bad)
{
	struct ibv_send_wr *refused = chain;
	int ret;

	for (uint32_t i = 0; i < n; i++)
		chain_one(&chain[i], &wr[i], i + 1 < n ? &chain[i + 1] : 0);
	ret = qp->context->ops.post_send(qp, chain, &refused);
	*bad = ret ? BATCH_INDEX(chain, refused, n) : n;
	return ret;
}

// Posts n receives to qp, or to srq if that is not null.
static int hand_batch_recv(struct ibv_qp *qp, struct ibv_srq *srq, const struct batch_wr *wr, uint32_t n, struct ibv_recv_wr *chain,
			   uint32_t *bad)
{
	struct ibv_recv_wr *refused = chain;
	int ret;

	for (uint32_t i = 0; i < n; i++) {
		chain[i].wr_id = wr[i].wr_id;
		chain[i].next = i + 1 < n ? &chain[i + 1] : 0;
		chain[i].sg_list = wr[i].sg_list;
		chain[i].num_sge = wr[i].num_sge;
	}
	ret = srq ? srq->context->ops.post_srq_recv(srq, chain, &refused) : qp->context->ops.post_recv(qp, chain, &refused);
	*bad = ret ? BATCH_INDEX(chain, refused, n) : n;
	return ret;
}

// A completion queue has readers for the fields that it was created with. Of
// a failed completion only identity, status and vendor error mean something.
static void batch_read(struct ibv_cq_ex *cq, struct ibv_wc *wc)
{
	memset(wc, 0, sizeof(*wc));
	wc->wr_id = cq->wr_id;
	wc->status = cq->status;
	wc->vendor_err = cq->read_vendor_err(cq);
	if (cq->read_qp_num)
		wc->qp_num = cq->read_qp_num(cq);
	if (cq->status != IBV_WC_SUCCESS)
		return;
	wc->opcode = cq->read_opcode(cq);
	wc->wc_flags = cq->read_wc_flags(cq);
	if (cq->read_byte_len)
		wc->byte_len = cq->read_byte_len(cq);
	if (cq->read_imm_data && wc->wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV))
		wc->imm_data = cq->read_imm_data(cq);
	if (cq->read_src_qp)
		wc->src_qp = cq->read_src_qp(cq);
	if (cq->read_slid)
		wc->slid = cq->read_slid(cq);
	if (cq->read_sl)
		wc->sl = cq->read_sl(cq);
	if (cq->read_dlid_path_bits)
		wc->dlid_path_bits = cq->read_dlid_path_bits(cq);
}

// Takes up to n completions and returns how many, or an errno value, negated.
static int hand_batch_poll(struct ibv_cq_ex *cq, int n, struct ibv_wc *wc)
{
	struct ibv_poll_cq_attr attr = { 0 };
	int i = 0, ret;

	if (n <= 0)
		return 0;
	ret = cq->start_poll(cq, &attr);
	if (ret)
		return ret == ENOENT ? 0 : -ret;
	do
		batch_read(cq, &wc[i++]);
	while (i < n && !(ret = cq->next_poll(cq)));
	cq->end_poll(cq);
	return i; // what an error of next_poll hid is said by the next poll
}

static uint64_t batch_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

// Polls again and again until there is a completion or ns nanoseconds are over.
// The clock costs more than a look, and a device made of software needs the core.
static int hand_batch_spin(struct ibv_cq *cq, int n, struct ibv_wc *wc, uint64_t ns)
{
	uint64_t start = batch_now();

	do {
		for (int i = 0; i < 64; i++) {
			int ret = cq->context->ops.poll_cq(cq, n, wc);

			if (ret)
				return ret;
		}
		sched_yield();
	} while (batch_now() - start < ns);
	return 0;
}
