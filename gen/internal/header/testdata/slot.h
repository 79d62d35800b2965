// An inline function that is one call through a pointer tells which; any other
// is only inline.
struct queue;

struct queue_ops {
	int (*post)(struct queue *q, int n);
	void (*ring)(struct queue *q);
};

struct context {
	struct queue_ops ops;
};

struct queue {
	struct context *ctx;
	void (*flush)(struct queue *q);
};

static inline int queue_post(struct queue *q, int n)
{
	return q->ctx->ops.post(q, n);
}

static inline void queue_flush(struct queue *q)
{
	q->flush(q);
}

static inline int queue_post_twice(struct queue *q, int n)
{
	q->ctx->ops.post(q, n);
	return q->ctx->ops.post(q, n);
}
