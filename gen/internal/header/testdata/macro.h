// Macros with a value, with another's name, and those that are calls.
#ifndef MACRO_H
#define MACRO_H

struct old_key {
	int value;
};

enum key_kind {
	KEY_KIND_LOCAL = 7,
};

int do_register(struct old_key *key, int is_const);
int do_release(struct old_key *key);
int close_key(struct old_key *key);

#define KEY_MAX 4096
#define KEY_MASK 0xffffffff00000000ULL
#define KEY_NONE (-1)
#define KEY_NAME "key"
#define KEY_LOCAL KEY_KIND_LOCAL
#define key old_key
#define release_key do_release
#define register_key(key) do_register(key, __builtin_constant_p(key))
#define close_key(key) do_release(key)
#define KEY_SHIFT(n) (1 << (n))
#define KEY_INLINE static inline

#endif
