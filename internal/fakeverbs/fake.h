#ifndef FAKEVERBS_FAKE_H
#define FAKEVERBS_FAKE_H

#include <stdint.h>

// Operations of objects are numbered from 0, library functions from here on.
#define FAKE_LIBRARY 1000

// What the last call of a recorder was.
struct fake_call {
	uint32_t calls; // how many there were
	uint32_t op;
	uint64_t args[6];
};

extern struct fake_call fake_last;
extern uint64_t fake_result; // what recorders return
uint64_t fake_record(uint32_t op, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f);

// Which operations beyond the oldest ones the provider of a world has.
enum {
	FAKE_NO_OPS,           // none: it does not know of them
	FAKE_ALL_OPS,
	FAKE_TOO_OLD_FOR_OPS,  // none: it knows of earlier ones
};

// Objects lie in slots. Those that have operations come first; of the others
// it only matters that they name the context.
#define FAKE_SLOT_SIZE 512
enum {
	FAKE_FLOW,
	FAKE_QP_EX,
	FAKE_CQ_EX,
	FAKE_DM,
	FAKE_WQ,
	FAKE_INTERFACE, // that providers of their own kind have
	FAKE_OTHERS,
	FAKE_SLOTS = 20,
};

uint64_t fake_context_offset(void);
void fake_init(void *context_block, void *objects, uint32_t present);
void *fake_connect(const char *library);
int fake_real_call(void *library, uint32_t i, const uint64_t *args, uint64_t *result);

// The provider of benchmarks.
uint8_t *ring_new(void);
void ring_free(uint8_t *ring);
uint8_t *ring_qp(uint8_t *ring);
uint8_t *ring_cq(uint8_t *ring);
uint8_t *ring_qp_ex(uint8_t *ring);
uint8_t *ring_cq_ex(uint8_t *ring);
uint32_t *ring_head(uint8_t *ring);
uint32_t *ring_tail(uint8_t *ring);
void ring_answer(uint8_t *ring, int32_t result, int32_t error);
int32_t ring_misused(uint8_t *ring);
double ring_post_loop(uint8_t *ring, uint8_t *wr, uint8_t *sge, int32_t n, int32_t fill, int64_t rounds);
double ring_batch_loop(uint8_t *ring, uint8_t *sge, int32_t n, int64_t rounds);
double ring_poll_loop(uint8_t *ring, uint8_t *wc, int32_t n, int64_t rounds);

#endif
