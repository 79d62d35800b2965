// Makes a library of the recorders of zz_library.c: what is called in it is
// recorded by the program that loaded it.
#include "fake.h"

uint64_t (*fake_forward)(uint32_t op, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f);

uint64_t fake_record(uint32_t op, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f)
{
	return fake_forward(op, a, b, c, d, e, f);
}
