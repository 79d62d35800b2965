#include "textflag.h"

// func rewrite(p *uint32)
TEXT ·rewrite(SB), NOSPLIT, $0-8
	MOVQ p+0(FP), AX
	LOCK
	ORL  $0, (AX)
	RET
