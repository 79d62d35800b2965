// A chain of typedefs ends in the type it stands for; the system's are kept
// apart from the header's own.
#include <stdint.h>

typedef uint32_t handle_t;
typedef handle_t key_t_;
typedef const key_t_ *keys_t;
typedef int32_t pair_t[2];

struct keys {
	key_t_ first;
	keys_t all;
	pair_t pair;
};
