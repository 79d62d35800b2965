package rdma

import (
	"context"
	"errors"
	"fmt"
	"syscall"
)

// Endpoint returns what a peer must know to connect to the queue pair. It is
// the same at every call, and an error once the queue pair is closed.
func (qp *QP) Endpoint() (Endpoint, error) {
	return qp.q.endpoint()
}

func (q *queuePair) endpoint() (Endpoint, error) {
	if err := q.acquire("query_qp"); err != nil {
		return Endpoint{}, err
	}
	defer q.h.Release()
	return Endpoint{
		Type: q.qpType, QPN: q.num, QKey: q.qkey, PSN: q.psn, LID: q.lid, GID: q.gid.GID, GIDType: q.gid.Type,
		LinkLayer: q.link, MTU: q.cfg.PathMTU,
		MaxReadDepth: q.cfg.MaxReadDepth, MaxReadDepthTarget: q.cfg.MaxReadDepthTarget,
	}, nil
}

// Connect connects the queue pair to a peer and brings it to state RTS. The
// peer connects to this one's Endpoint; the order does not matter, but a side
// may send only once the other has connected. A queue pair can be connected to
// itself, and not connected again before Modify has led it back to RESET. After an
// error, Connect can be called again with the same peer.
//
// The connection uses the smaller MTU of both sides and at most as many reads
// as one side starts and the other serves. Packets have a global route header
// on Ethernet and where the port asks for it. The port's address is looked up
// again, as its index changes when links do.
//
// Queue pairs of iWARP can't be connected: the error wraps
// [errors.ErrUnsupported].
//
// Connect makes few short calls and looks at ctx between them. One of them can
// take a second, where the kernel has to find the peer on an Ethernet.
func (qp *QP) Connect(ctx context.Context, peer Endpoint) error {
	q := qp.q
	if err := q.acquire("modify_qp"); err != nil {
		return err
	}
	defer qp.release()
	return q.connect(ctx, peer)
}

func (q *queuePair) connect(ctx context.Context, peer Endpoint) error {
	if t := q.dom.dev.id.transport; t == TransportIWARP {
		return opError("modify_qp", q.device, fmt.Errorf("%w: queue pairs of %s are connected by rdma_cm only", errors.ErrUnsupported, t))
	}
	if peer == (Endpoint{}) {
		return opError("modify_qp", q.device, fmt.Errorf("%w: the peer's endpoint is empty", syscall.EINVAL))
	}
	if peer.Type != 0 && peer.Type != q.qpType {
		return opError("modify_qp", q.device, fmt.Errorf("%w: the peer's queue pair is of type %s, this one of type %s", syscall.EINVAL, peer.Type, q.qpType))
	}
	port, gid, err := q.currentPort()
	if err != nil {
		return err
	}
	link, err := negotiate(q.cfg, &port, gid, peer)
	if err != nil {
		return opError("modify_qp", q.device, err)
	}
	if err := peer.validate(); err != nil { // it may not have come from a decoder
		return err
	}
	now, err := q.query()
	if err != nil {
		return err
	}
	steps := []QPAttr{q.toInit(), link.toRTR(peer), link.toRTS(q.psn)}
	switch now.State {
	case QPInit:
		steps = steps[1:] // some devices refuse a change from INIT to INIT
	case QPRTR:
		if !link.agrees(now, peer) {
			return opError("modify_qp", q.device, errConnected)
		}
		steps = steps[2:] // an earlier attempt got that far
	case QPRTS, QPSQD:
		return opError("modify_qp", q.device, errConnected)
	}
	for i := range steps {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("rdma: connecting %s QP %#x to QP %#x: %w", q.device, q.num, peer.QPN, err)
		}
		if err := q.modify(&steps[i]); err != nil {
			var refused *Error
			if errors.As(err, &refused) && refused.Hint == "" { // an address may be what is wrong
				refused.Hint = "connecting to " + peer.address()
			}
			return err
		}
	}
	return nil
}

var errConnected = fmt.Errorf("%w: the queue pair is connected already", syscall.EINVAL)

// address names the queue pair of an endpoint.
func (e Endpoint) address() string {
	if e.GID.IsZero() {
		return fmt.Sprintf("QP %#x at LID %d", e.QPN, e.LID)
	}
	return fmt.Sprintf("QP %#x at %s", e.QPN, e.GID)
}

// currentPort returns the port as it is now, and the entry of its table that
// has the queue pair's address.
func (q *queuePair) currentPort() (PortInfo, GIDEntry, error) {
	port, gid, noGID, err := q.dom.dev.queryPort(q.cfg.Port, GIDChoice{GID: q.gid.GID, Type: q.gid.Type})
	if err != nil || q.gid.GID.IsZero() {
		return port, q.gid, err
	}
	return port, gid, noGID
}

// toInit returns the change to state INIT.
func (q *queuePair) toInit() QPAttr {
	return QPAttr{
		Mask: QPAttrState | initAttrs, State: QPInit,
		PKeyIndex: q.cfg.PKeyIndex, Port: q.cfg.Port, Access: q.access,
	}
}

// link is what both sides of a connection agreed on.
type link struct {
	cfg                              Config // of this side
	path                             Path
	mtu                              MTU
	maxReadDepth, maxReadDepthTarget int
}

// negotiate returns what a connection to peer uses, from a port by one of its
// addresses.
func negotiate(cfg Config, port *PortInfo, gid GIDEntry, peer Endpoint) (link, error) {
	if port.LinkLayer != peer.LinkLayer {
		return link{}, fmt.Errorf("the peer is on %s, this port on %s", peer.LinkLayer, port.LinkLayer)
	}
	if mtuCode(peer.MTU) == 0 {
		return link{}, fmt.Errorf("the peer's MTU is %d, want 256, 512, 1024, 2048 or 4096", int(peer.MTU))
	}
	global := port.LinkLayer != LinkLayerInfiniBand || port.GRHRequired || otherSubnet(gid.GID, peer.GID)
	if global && peer.GID.IsZero() {
		return link{}, fmt.Errorf("the peer has no GID, which is needed on this port")
	}
	if global && gid.GID.IsZero() {
		return link{}, fmt.Errorf("the port has no GID, which it needs")
	}
	if gid.Type != peer.GIDType && global {
		return link{}, fmt.Errorf("the peer's GID %s is for %s, this port's %s for %s", peer.GID, peer.GIDType, gid.GID, gid.Type)
	}
	if !global && peer.LID == 0 {
		return link{}, fmt.Errorf("the peer has no LID")
	}
	return link{
		cfg: cfg,
		path: Path{
			Global: global, DestGID: peer.GID, SrcGIDIndex: gid.Index,
			FlowLabel: cfg.FlowLabel, TrafficClass: cfg.TrafficClass, HopLimit: cfg.HopLimit,
			DestLID: peer.LID, SL: cfg.SL, Port: port.Number,
		},
		mtu:                min(cfg.PathMTU, peer.MTU),
		maxReadDepth:       min(cfg.MaxReadDepth, peer.MaxReadDepthTarget),
		maxReadDepthTarget: min(cfg.MaxReadDepthTarget, peer.MaxReadDepth),
	}, nil
}

// otherSubnet tells whether a router is between two InfiniBand addresses.
func otherSubnet(a, b GID) bool {
	return !a.IsZero() && !b.IsZero() && a.SubnetPrefix() != b.SubnetPrefix()
}

// agrees tells whether a queue pair with these attributes leads to peer.
func (l *link) agrees(now *QPAttr, peer Endpoint) bool {
	if l.path.Global && now.Path.DestGID != peer.GID || !l.path.Global && now.Path.DestLID != peer.LID {
		return false
	}
	return now.DestQPN == peer.QPN
}

// toRTR returns the change to state RTR.
func (l *link) toRTR(peer Endpoint) QPAttr {
	return QPAttr{
		Mask: QPAttrState | rcTransitions[[2]QPState{QPInit, QPRTR}].required, State: QPRTR,
		Path: l.path, PathMTU: l.mtu, DestQPN: peer.QPN, RQPSN: peer.PSN,
		MaxReadDepthTarget: l.maxReadDepthTarget, MinRNRTimer: l.cfg.MinRNRTimer,
	}
}

// toRTS returns the change to state RTS.
func (l *link) toRTS(psn uint32) QPAttr {
	return QPAttr{
		Mask: QPAttrState | rcTransitions[[2]QPState{QPRTR, QPRTS}].required, State: QPRTS,
		SQPSN: psn, MaxReadDepth: l.maxReadDepth,
		Timeout: l.cfg.Timeout, RetryCount: l.cfg.RetryCount, RNRRetry: l.cfg.RNRRetry,
	}
}
