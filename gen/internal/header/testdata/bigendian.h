// The kernel's big-endian types keep their names.
#include <linux/types.h>

union gid {
	unsigned char raw[16];
	struct {
		__be64 prefix;
		__be64 id;
	} global;
};

struct header {
	__be32 imm;
	__be16 port;
};
