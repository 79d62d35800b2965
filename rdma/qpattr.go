package rdma

import (
	"fmt"

	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// toC returns the attributes as the library takes them. Numbers that their
// fields cannot hold are refused.
func (a *QPAttr) toC() (raw ibverbs.QPAttr, err error) {
	check := func(bit QPAttrMask, field string, value, most int) {
		if err == nil && a.Mask&bit != 0 && (value < 0 || value > most) {
			err = fmt.Errorf("%s is %d, allowed is 0 to %d", field, value, most)
		}
	}
	const psnMax, byteMax = 1<<24 - 1, 1<<8 - 1
	check(QPAttrPKeyIndex, "PKeyIndex", a.PKeyIndex, 1<<16-1)
	check(QPAttrPort, "Port", a.Port, byteMax)
	check(QPAttrDestQPN, "DestQPN", int(a.DestQPN), psnMax)
	check(QPAttrSQPSN, "SQPSN", int(a.SQPSN), psnMax)
	check(QPAttrRQPSN, "RQPSN", int(a.RQPSN), psnMax)
	check(QPAttrRetryCount, "RetryCount", a.RetryCount, 7)
	check(QPAttrRNRRetry, "RNRRetry", a.RNRRetry, 7)
	check(QPAttrMaxReadDepth, "MaxReadDepth", a.MaxReadDepth, byteMax)
	check(QPAttrMaxReadDepthTarget, "MaxReadDepthTarget", a.MaxReadDepthTarget, byteMax)
	check(QPAttrPath, "Path.SrcGIDIndex", a.Path.SrcGIDIndex, byteMax)
	check(QPAttrPath, "Path.FlowLabel", a.Path.FlowLabel, 1<<20-1)
	check(QPAttrPath, "Path.TrafficClass", a.Path.TrafficClass, byteMax)
	check(QPAttrPath, "Path.HopLimit", a.Path.HopLimit, byteMax)
	check(QPAttrPath, "Path.SL", a.Path.SL, 15)
	check(QPAttrPath, "Path.Port", a.Path.Port, byteMax)
	if err == nil && a.Mask&QPAttrPathMTU != 0 && mtuCode(a.PathMTU) == 0 {
		err = fmt.Errorf("PathMTU is %d, allowed is 256, 512, 1024, 2048 or 4096", int(a.PathMTU))
	}
	if unknown := a.Mask &^ qpAttrSettable; err == nil && unknown != 0 {
		err = fmt.Errorf("%s cannot be set", unknown)
	}
	if err != nil {
		return raw, err
	}
	raw = ibverbs.QPAttr{
		QPState:         ibverbs.QPState(a.State),
		CurQPState:      ibverbs.QPState(a.CurState),
		PathMTU:         ibverbs.MTU(mtuCode(a.PathMTU)),
		QKey:            a.QKey,
		RQPSN:           a.RQPSN,
		SQPSN:           a.SQPSN,
		DestQPNum:       a.DestQPN,
		QPAccessFlags:   ibverbs.AccessFlags(a.Access),
		AHAttr:          a.Path.toC(),
		PKeyIndex:       uint16(a.PKeyIndex),
		MaxRDAtomic:     uint8(a.MaxReadDepth),
		MaxDestRDAtomic: uint8(a.MaxReadDepthTarget),
		MinRNRTimer:     rnrTimerCode(a.MinRNRTimer),
		PortNum:         uint8(a.Port),
		Timeout:         timeoutCode(a.Timeout),
		RetryCnt:        uint8(a.RetryCount),
		RNRRetry:        uint8(a.RNRRetry),
	}
	if a.EnSQDAsyncNotify {
		raw.EnSQDAsyncNotify = 1
	}
	return raw, nil
}

// qpAttrSettable are the attributes that QPAttr has fields for.
const qpAttrSettable = (QPAttrDestQPN<<1 - 1) &^ (QPAttrAltPath | QPAttrPathMigState | QPAttrCap)

// attrOfC returns attributes that the library reported.
func attrOfC(raw *ibverbs.QPAttr) *QPAttr {
	return &QPAttr{
		State:              QPState(raw.QPState),
		CurState:           QPState(raw.CurQPState),
		EnSQDAsyncNotify:   raw.EnSQDAsyncNotify != 0,
		Access:             Access(raw.QPAccessFlags),
		PKeyIndex:          int(raw.PKeyIndex),
		Port:               int(raw.PortNum),
		QKey:               raw.QKey,
		Path:               pathOfC(&raw.AHAttr),
		PathMTU:            mtuOf(uint8(raw.PathMTU)),
		DestQPN:            raw.DestQPNum,
		SQPSN:              raw.SQPSN,
		RQPSN:              raw.RQPSN,
		Timeout:            timeout(raw.Timeout),
		RetryCount:         int(raw.RetryCnt),
		RNRRetry:           int(raw.RNRRetry),
		MinRNRTimer:        rnrTimer(raw.MinRNRTimer),
		MaxReadDepth:       int(raw.MaxRDAtomic),
		MaxReadDepthTarget: int(raw.MaxDestRDAtomic),
	}
}

func (p *Path) toC() ibverbs.AHAttr {
	raw := ibverbs.AHAttr{
		DLID: p.DestLID, SL: uint8(p.SL), SrcPathBits: p.SrcPathBits, StaticRate: p.StaticRate, PortNum: uint8(p.Port),
		GRH: ibverbs.GlobalRoute{
			FlowLabel: uint32(p.FlowLabel), SGIDIndex: uint8(p.SrcGIDIndex),
			HopLimit: uint8(p.HopLimit), TrafficClass: uint8(p.TrafficClass),
		},
	}
	*raw.GRH.DGID.Raw() = p.DestGID
	if p.Global {
		raw.IsGlobal = 1
	}
	return raw
}

func pathOfC(raw *ibverbs.AHAttr) Path {
	return Path{
		Global: raw.IsGlobal != 0, DestGID: GID(*raw.GRH.DGID.Raw()),
		SrcGIDIndex: int(raw.GRH.SGIDIndex), FlowLabel: int(raw.GRH.FlowLabel),
		TrafficClass: int(raw.GRH.TrafficClass), HopLimit: int(raw.GRH.HopLimit),
		DestLID: raw.DLID, SL: int(raw.SL), SrcPathBits: raw.SrcPathBits, StaticRate: raw.StaticRate, Port: int(raw.PortNum),
	}
}
