package backend

import "github.com/goverbs/goverbs/zz_generated/ibverbs"

// DCDomain is a [Domain] whose device has dynamic connections: an initiator
// reaches any number of targets, each request names its own.
type DCDomain interface {
	Domain

	// CreateDCInitiator creates the sending end and sets in init what was
	// granted. init.SendOpsFlags has what the caller posts. address tells how
	// requests name their target. The domain sets the type and the PD.
	CreateDCInitiator(init *ibverbs.QPInitAttrEx) (qp *ibverbs.QP, address ibverbs.BatchDC, err error)

	// CreateDCTarget creates the receiving end, whose receives are those of
	// init.SRQ, for initiators that know the key.
	CreateDCTarget(init *ibverbs.QPInitAttrEx, key uint64) (*ibverbs.QP, error)
}
