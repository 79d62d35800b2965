// Enumerations: equal values, negative ones, shifts, no tag, and 64 bits.
enum status {
	STATUS_OK,
	STATUS_BAD,
	STATUS_FIRST_BAD = STATUS_BAD,
	STATUS_WORSE = 8,
};

enum offset {
	OFFSET_UNKNOWN = -1,
	OFFSET_START,
};

enum access {
	ACCESS_LOCAL = 1 << 0,
	ACCESS_REMOTE = 1 << 1,
	ACCESS_ALL = ACCESS_LOCAL | ACCESS_REMOTE,
};

enum {
	NAME_MAX_LEN = 64,
};

enum capability {
	CAPABILITY_SMALL = 1,
	CAPABILITY_LARGE = 1ULL << 40,
};

struct port {
	enum status status;
	enum offset offset;
};
