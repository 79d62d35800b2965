// A packed struct has fields where their alignment would forbid it.
struct loose {
	unsigned char opcode;
	unsigned short imm;
	unsigned long addr;
};

struct tight {
	unsigned char opcode;
	unsigned short imm;
	unsigned long addr;
} __attribute__((packed));

struct wide {
	unsigned char opcode;
} __attribute__((aligned(64)));
