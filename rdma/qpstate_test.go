package rdma

import (
	"strings"
	"testing"
)

func TestTransitionNamesWrongAttributes(t *testing.T) {
	rtr := rcTransitions[[2]QPState{QPInit, QPRTR}].required
	rts := rcTransitions[[2]QPState{QPRTR, QPRTS}].required
	for _, c := range []struct {
		from, to QPState
		mask     QPAttrMask
		want     string // part of the error; empty for none
	}{
		{QPReset, QPInit, initAttrs, ""},
		{QPReset, QPInit, QPAttrState | initAttrs, ""},
		{QPInit, QPInit, QPAttrAccess, ""},
		{QPInit, QPRTR, rtr, ""},
		{QPInit, QPRTR, rtr | QPAttrAccess, ""},
		{QPRTR, QPRTS, rts, ""},
		{QPRTS, QPRTS, QPAttrMinRNRTimer, ""},
		{QPRTS, QPSQD, QPAttrEnSQDAsyncNotify, ""},
		{QPSQD, QPSQD, QPAttrTimeout, ""},
		{QPSQD, QPRTS, 0, ""},
		{QPRTS, QPErr, QPAttrState, ""},
		{QPErr, QPReset, QPAttrState, ""},

		{QPReset, QPInit, QPAttrPort | QPAttrAccess, "RESET to INIT lacks PKEY_INDEX"},
		{QPInit, QPRTR, rtr &^ (QPAttrPathMTU | QPAttrDestQPN), "lacks PATH_MTU|DEST_QPN"},
		{QPInit, QPRTR, rtr | QPAttrSQPSN, "must not have SQ_PSN"},
		{QPRTR, QPRTS, rts&^QPAttrTimeout | QPAttrPort, "lacks TIMEOUT and must not have PORT"},
		{QPRTS, QPRTS, QPAttrDestQPN, "must not have DEST_QPN"},
		{QPRTS, QPErr, QPAttrState | QPAttrSQPSN, "must not have SQ_PSN"},
		{QPReset, QPRTS, rts, "cannot go from RESET to RTS"},
		{QPErr, QPRTS, rts, "cannot go from ERR to RTS"},
		{QPRTS, QPInit, initAttrs, "cannot go from RTS to INIT"},
	} {
		err := checkTransition(c.from, c.to, c.mask)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s to %s with %s: %v", c.from, c.to, c.mask, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s to %s with %s: error %v, want %q in it", c.from, c.to, c.mask, err, c.want)
		}
	}
}

func TestQPAttrRefusesWhatDoesNotFit(t *testing.T) {
	for _, c := range []struct {
		attr QPAttr
		want string
	}{
		{QPAttr{Mask: QPAttrDestQPN, DestQPN: 1 << 24}, "DestQPN is 16777216, allowed is 0 to 16777215"},
		{QPAttr{Mask: QPAttrSQPSN, SQPSN: 1 << 24}, "SQPSN"},
		{QPAttr{Mask: QPAttrRetryCount, RetryCount: 8}, "RetryCount is 8, allowed is 0 to 7"},
		{QPAttr{Mask: QPAttrRNRRetry, RNRRetry: -1}, "RNRRetry"},
		{QPAttr{Mask: QPAttrPathMTU, PathMTU: 1500}, "PathMTU is 1500"},
		{QPAttr{Mask: QPAttrPath, Path: Path{SrcGIDIndex: 256}}, "SrcGIDIndex is 256"},
		{QPAttr{Mask: QPAttrPath, Path: Path{SL: 16}}, "SL is 16"},
		{QPAttr{Mask: QPAttrAltPath}, "ALT_PATH cannot be set"},
	} {
		if _, err := c.attr.toC(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v, want %q in it", c.attr, err, c.want)
		}
	}
	// What the mask leaves out does not matter.
	if _, err := (&QPAttr{Mask: QPAttrState, DestQPN: 1 << 30, PathMTU: 7}).toC(); err != nil {
		t.Error(err)
	}
}
