#include "textflag.h"

// func evictLine(p unsafe.Pointer)
TEXT ·evictLine(SB), NOSPLIT, $0-8
	MOVQ    p+0(FP), AX
	CLFLUSH (AX)
	RET
