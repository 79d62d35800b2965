// Unions without a tag are named by their place, never by their line.
struct request {
	unsigned long id;
	union {
		unsigned imm;
		unsigned rkey;
	};
	union {
		struct {
			unsigned long addr;
			unsigned rkey;
		} rdma;
		struct {
			unsigned long addr, add, swap;
		} atomic;
	} op;
};

typedef struct {
	int x, y;
} point_t;
