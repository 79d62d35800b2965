package fabric

import "maps"

// QPType is a queue pair's service (enum ibv_qp_type).
type QPType uint8

// The services.
const (
	RC QPType = 2
	UC QPType = 3
	UD QPType = 4

	// Extended reliable connections: one direction each, to whatever shared queue
	// of its domain a request names.
	XRCSend QPType = 9
	XRCRecv QPType = 10

	SRD QPType = 0xff // of EFA: reliable datagrams, which verbs calls a driver's own service

	// Of mlx5, where that service is one of two: initiators that connect with a
	// target for as long as a request takes. The numbers are ours.
	DCI QPType = 0xf0
	DCT QPType = 0xf1
)

// reliable reports whether requests are answered.
func (t QPType) reliable() bool { return t == RC || t == SRD || t == DCI || t == XRCSend }

// datagram reports whether each request says where it goes.
func (t QPType) datagram() bool { return t == UD || t == SRD || t == DCI }

// ordered reports whether requests are executed and end in the order of posting,
// at one peer.
func (t QPType) ordered() bool { return t == RC || t == XRCSend }

// hears reports whether a queue pair takes what one of another type sends.
func (t QPType) hears(from QPType) bool {
	switch from {
	case DCI:
		return t == DCT
	case XRCSend:
		return t == XRCRecv
	}
	return t == from
}

// State is where a queue pair is in its life (enum ibv_qp_state).
type State uint8

// The states.
const (
	StateReset State = iota
	StateInit
	StateRTR
	StateRTS
	StateSQD
	StateSQE
	StateErr
)

// Mask says which attributes a modification carries (enum ibv_qp_attr_mask).
type Mask uint32

// The attributes.
const (
	MaskState            Mask = 1 << 0
	MaskCurState         Mask = 1 << 1
	MaskEnSQDAsyncNotify Mask = 1 << 2
	MaskAccess           Mask = 1 << 3
	MaskPKeyIndex        Mask = 1 << 4
	MaskPort             Mask = 1 << 5
	MaskQKey             Mask = 1 << 6
	MaskAV               Mask = 1 << 7
	MaskPathMTU          Mask = 1 << 8
	MaskTimeout          Mask = 1 << 9
	MaskRetryCount       Mask = 1 << 10
	MaskRNRRetry         Mask = 1 << 11
	MaskRQPSN            Mask = 1 << 12
	MaskMaxRdAtomic      Mask = 1 << 13
	MaskAltPath          Mask = 1 << 14
	MaskMinRNRTimer      Mask = 1 << 15
	MaskSQPSN            Mask = 1 << 16
	MaskMaxDestRdAtomic  Mask = 1 << 17
	MaskPathMigState     Mask = 1 << 18
	MaskCap              Mask = 1 << 19
	MaskDestQPN          Mask = 1 << 20
)

// attrs are what a transition needs and what else it may carry.
type attrs struct{ required, optional Mask }

type transition struct{ from, to State }

// transitions lists what leads from state to state, by service (IBA volume 1,
// section 11.2.5.2, table 95). What else leads to RESET and ERR allowed says.
var transitions = map[QPType]map[transition]attrs{
	RC: {
		{StateReset, StateInit}: {required: MaskPKeyIndex | MaskPort | MaskAccess},
		{StateInit, StateInit}:  {optional: MaskPKeyIndex | MaskPort | MaskAccess},
		{StateInit, StateRTR}: {
			required: MaskAV | MaskPathMTU | MaskDestQPN | MaskRQPSN | MaskMaxDestRdAtomic | MaskMinRNRTimer,
			optional: MaskAltPath | MaskAccess | MaskPKeyIndex,
		},
		{StateRTR, StateRTS}: {
			required: MaskTimeout | MaskRetryCount | MaskRNRRetry | MaskSQPSN | MaskMaxRdAtomic,
			optional: MaskCurState | MaskAltPath | MaskAccess | MaskMinRNRTimer | MaskPathMigState,
		},
		{StateRTS, StateRTS}: {optional: MaskCurState | MaskAccess | MaskAltPath | MaskPathMigState | MaskMinRNRTimer},
		{StateRTS, StateSQD}: {optional: MaskEnSQDAsyncNotify},
		{StateSQD, StateRTS}: {optional: MaskCurState | MaskAltPath | MaskAccess | MaskMinRNRTimer | MaskPathMigState},
		{StateSQD, StateSQD}: {optional: MaskPort | MaskAV | MaskTimeout | MaskRetryCount | MaskRNRRetry | MaskMaxRdAtomic | MaskMaxDestRdAtomic |
			MaskAltPath | MaskAccess | MaskPKeyIndex | MaskMinRNRTimer | MaskPathMigState},
	},
	UC: {
		{StateReset, StateInit}: {required: MaskPKeyIndex | MaskPort | MaskAccess},
		{StateInit, StateInit}:  {optional: MaskPKeyIndex | MaskPort | MaskAccess},
		{StateInit, StateRTR}: {
			required: MaskAV | MaskPathMTU | MaskDestQPN | MaskRQPSN,
			optional: MaskAltPath | MaskAccess | MaskPKeyIndex,
		},
		{StateRTR, StateRTS}: {required: MaskSQPSN, optional: MaskCurState | MaskAltPath | MaskAccess | MaskPathMigState},
		{StateRTS, StateRTS}: {optional: MaskCurState | MaskAccess | MaskAltPath | MaskPathMigState},
		{StateRTS, StateSQD}: {optional: MaskEnSQDAsyncNotify},
		{StateSQD, StateRTS}: {optional: MaskCurState | MaskAltPath | MaskAccess | MaskPathMigState},
		{StateSQD, StateSQD}: {optional: MaskAV | MaskAltPath | MaskAccess | MaskPKeyIndex | MaskPathMigState},
		{StateSQE, StateRTS}: {optional: MaskCurState | MaskAccess},
	},
	UD: {
		{StateReset, StateInit}: {required: MaskPKeyIndex | MaskPort | MaskQKey},
		{StateInit, StateInit}:  {optional: MaskPKeyIndex | MaskPort | MaskQKey},
		{StateInit, StateRTR}:   {optional: MaskPKeyIndex | MaskQKey},
		{StateRTR, StateRTS}:    {required: MaskSQPSN, optional: MaskCurState | MaskQKey},
		{StateRTS, StateRTS}:    {optional: MaskCurState | MaskQKey},
		{StateRTS, StateSQD}:    {optional: MaskEnSQDAsyncNotify},
		{StateSQD, StateRTS}:    {optional: MaskCurState | MaskQKey},
		{StateSQD, StateSQD}:    {optional: MaskPKeyIndex | MaskQKey},
		{StateSQE, StateRTS}:    {optional: MaskCurState | MaskQKey},
	},
}

func init() {
	// Reliable datagrams are set up like others.
	srd := maps.Clone(transitions[UD])
	rts := srd[transition{StateRTR, StateRTS}]
	rts.optional |= MaskRNRRetry
	srd[transition{StateRTR, StateRTS}] = rts
	transitions[SRD] = srd
}

// ignored are the attributes that concern the direction which an end of an
// extended connection does not have. Programs set them all the same.
var ignored = map[QPType]Mask{
	XRCSend: MaskMaxDestRdAtomic | MaskMinRNRTimer,
	XRCRecv: MaskRetryCount | MaskRNRRetry | MaskMaxRdAtomic,
}

func init() {
	for t, other := range ignored {
		transitions[t] = make(map[transition]attrs)
		for tr, a := range transitions[RC] {
			transitions[t][tr] = attrs{a.required &^ other, a.optional &^ other}
		}
	}
}

// transitions of mlx5's own services, as its driver checks them.
func init() {
	transitions[DCI] = map[transition]attrs{
		{StateReset, StateInit}: {required: MaskPKeyIndex | MaskPort},
		{StateInit, StateInit}:  {optional: MaskPKeyIndex | MaskPort},
		{StateInit, StateRTR}:   {required: MaskPathMTU, optional: MaskPKeyIndex | MaskAV},
		{StateRTR, StateRTS}:    {required: MaskTimeout | MaskRetryCount | MaskRNRRetry | MaskMaxRdAtomic | MaskSQPSN, optional: MaskMinRNRTimer},
		{StateRTS, StateRTS}:    {optional: MaskMinRNRTimer},
	}
	transitions[DCT] = map[transition]attrs{
		{StateReset, StateInit}: {required: MaskPKeyIndex | MaskPort | MaskAccess},
		{StateInit, StateInit}:  {optional: MaskPKeyIndex | MaskPort | MaskAccess},
		{StateInit, StateRTR}:   {required: MaskMinRNRTimer | MaskAV | MaskPathMTU, optional: MaskMaxDestRdAtomic},
	}
}

// allowed reports whether a queue pair may go from one state to another with
// the attributes in mask.
func allowed(t QPType, from, to State, mask Mask) bool {
	if mask&MaskCurState != 0 && (from < StateRTR || from > StateSQE) {
		return false
	}
	var a attrs
	// Any state leads to RESET, and but for that to ERR, without more; a DCT's
	// driver knows no way back.
	if t == DCT || to != StateReset && (to != StateErr || from == StateReset) {
		var ok bool
		if a, ok = transitions[t][transition{from, to}]; !ok {
			return false
		}
	}
	return mask&a.required == a.required && mask&^(a.required|a.optional|MaskState) == 0
}
