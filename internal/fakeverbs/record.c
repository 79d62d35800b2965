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

// Lays out, in two blocks of memory, a context and objects of which each one
// names it where rdma-core's structures do. present says whether the provider
// has operations beyond the oldest ones: 0 no, 1 yes, 2 it is too old for them.
void fake_init(void *block, void *objects, uint32_t present)
{
	struct verbs_context *v = block;
	struct ibv_context *context = &v->context;
	char *o = objects;

	fill(v, &v->sz, 0);
	v->sz = present == 2 ? sizeof(struct ibv_context) : sizeof(*v);
	if (present == 0)
		memset(v, 0, offsetof(struct verbs_context, sz));
	context->abi_compat = present == 0 ? 0 : (void *)(uintptr_t)-1;
	fill(&context->ops, &context->ops + 1, 60);

	// Slots of 512 bytes, in the order of the Go side's object kinds. In most
	// structures the context is the first member.
	for (int i = 0; i < 20; i++)
		*(void **)(o + 512 * i) = context;
	((struct ibv_flow *)(o + 512 * 1))->context = context;
	struct ibv_qp_ex *qp = (void *)(o + 512 * 2);
	fill(&qp->wr_atomic_cmp_swp, qp + 1, 100);
	struct ibv_cq_ex *cq = (void *)(o + 512 * 3);
	fill(&cq->start_poll, cq + 1, 130);
	struct ibv_dm *dm = (void *)(o + 512 * 4);
	fill(&dm->memcpy_to_dm, &dm->memcpy_from_dm + 1, 155);
	struct ibv_wq *wq = (void *)(o + 512 * 13);
	fill(&wq->post_recv, &wq->post_recv + 1, 160);
	fill(o + 512 * 5 + 8, o + 512 * 6, 100); // interfaces of providers: comp_mask, then operations
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
