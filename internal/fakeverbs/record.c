//go:build linux && cgo

// Objects whose operations note how they are called.

#include <dlfcn.h>
#include <string.h>
#include "fake.h"
#include "zz_abi.h"

struct fake_call fake_last;
uint64_t fake_result;

uint64_t fake_record(uint32_t op, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f)
{
	fake_last.calls++;
	fake_last.op = op;
	fake_last.args[0] = a;
	fake_last.args[1] = b;
	fake_last.args[2] = c;
	fake_last.args[3] = d;
	fake_last.args[4] = e;
	fake_last.args[5] = f;
	return fake_result;
}

// Every operation of rdma-core takes integers and pointers only, and at most
// six: the calling convention hands them over in registers whatever they are.
#define OP(n) \
	static uint64_t op##n(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f) { return fake_record(n, a, b, c, d, e, f); }
#define OPS10(t) OP(t##0) OP(t##1) OP(t##2) OP(t##3) OP(t##4) OP(t##5) OP(t##6) OP(t##7) OP(t##8) OP(t##9)
OPS10(1) OPS10(2) OPS10(3) OPS10(4) OPS10(5) OPS10(6) OPS10(7) OPS10(8) OPS10(9)
OPS10(10) OPS10(11) OPS10(12) OPS10(13) OPS10(14) OPS10(15) OPS10(16) OPS10(17) OPS10(18) OPS10(19)

#define NAMES10(t) op##t##0, op##t##1, op##t##2, op##t##3, op##t##4, op##t##5, op##t##6, op##t##7, op##t##8, op##t##9
typedef uint64_t (*op_t)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
static const op_t ops[] = {
	NAMES10(1), NAMES10(2), NAMES10(3), NAMES10(4), NAMES10(5), NAMES10(6), NAMES10(7), NAMES10(8), NAMES10(9),
	NAMES10(10), NAMES10(11), NAMES10(12), NAMES10(13), NAMES10(14), NAMES10(15), NAMES10(16), NAMES10(17), NAMES10(18), NAMES10(19),
};

// Points the words of [begin, end) to recorders from the given one on.
static void fill(void *begin, void *end, int from)
{
	for (op_t *p = begin; p < (op_t *)end; p++)
		*p = ops[from++];
}

uint64_t fake_context_offset(void) { return offsetof(struct verbs_context, context); }

static void *slot(void *objects, int i) { return (char *)objects + FAKE_SLOT_SIZE * i; }

// Lays out, in two blocks of memory, a context and objects of which each one
// names it where rdma-core's structures do: in most, first.
void fake_init(void *block, void *objects, uint32_t present)
{
	struct verbs_context *v = block;
	struct ibv_context *context = &v->context;

	fill(v, &v->sz, 0);
	v->sz = present == FAKE_TOO_OLD_FOR_OPS ? sizeof(struct ibv_context) : sizeof(*v);
	if (present == FAKE_NO_OPS)
		memset(v, 0, offsetof(struct verbs_context, sz));
	context->abi_compat = present == FAKE_NO_OPS ? 0 : (void *)(uintptr_t)-1;
	fill(&context->ops, &context->ops + 1, 60);

	for (int i = 0; i < FAKE_SLOTS; i++)
		*(void **)slot(objects, i) = context;
	((struct ibv_flow *)slot(objects, FAKE_FLOW))->context = context;
	struct ibv_qp_ex *qp = slot(objects, FAKE_QP_EX);
	fill(&qp->wr_atomic_cmp_swp, qp + 1, 100);
	struct ibv_cq_ex *cq = slot(objects, FAKE_CQ_EX);
	fill(&cq->start_poll, cq + 1, 130);
	struct ibv_dm *dm = slot(objects, FAKE_DM);
	fill(&dm->memcpy_to_dm, &dm->memcpy_from_dm + 1, 155);
	struct ibv_wq *wq = slot(objects, FAKE_WQ);
	fill(&wq->post_recv, &wq->post_recv + 1, 160);
	uint64_t *interface = slot(objects, FAKE_INTERFACE); // comp_mask, then operations
	fill(interface + 1, slot(objects, FAKE_INTERFACE + 1), 100);
}

// Makes a library of recorders report to this program.
void *fake_connect(const char *library)
{
	void *handle = dlopen(library, RTLD_NOW);
	__typeof__(&fake_record) *forward = handle ? dlsym(handle, "fake_forward") : 0;

	if (!forward)
		return 0;
	*forward = fake_record;
	return handle;
}

int fake_real_call(void *library, uint32_t i, const uint64_t *args, uint64_t *result)
{
	static int (*call)(uint32_t, const uint64_t *, uint64_t *);

	if (!call)
		call = dlsym(library, "real_call");
	return call(i, args, result);
}
