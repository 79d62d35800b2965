package mlx5

import (
	"fmt"

	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// connectToItself brings a queue pair to the state in which it takes requests.
// It must have a peer for that, which it is itself.
func connectToItself(ctx *ibverbs.Context, qp *ibverbs.QP) error {
	number, port, err := anyPort(ctx)
	if err != nil {
		return err
	}
	gid, index, err := anyGID(ctx, number, int32(port.GIDTblLen))
	if err != nil {
		return err
	}
	attr := ibverbs.QPAttr{
		PortNum:   number,
		PathMTU:   port.ActiveMTU,
		DestQPNum: ibverbs.QPNum(qp),
		AHAttr: ibverbs.AHAttr{
			GRH:  ibverbs.GlobalRoute{DGID: gid, SGIDIndex: uint8(index), HopLimit: 1},
			DLID: port.LID, IsGlobal: 1, PortNum: number,
		},
	}
	for _, step := range []struct {
		to   ibverbs.QPState
		mask ibverbs.QPAttrMask
	}{
		{ibverbs.IBV_QPS_INIT, ibverbs.IBV_QP_PKEY_INDEX | ibverbs.IBV_QP_PORT | ibverbs.IBV_QP_ACCESS_FLAGS},
		{ibverbs.IBV_QPS_RTR, ibverbs.IBV_QP_AV | ibverbs.IBV_QP_PATH_MTU | ibverbs.IBV_QP_DEST_QPN | ibverbs.IBV_QP_RQ_PSN |
			ibverbs.IBV_QP_MAX_DEST_RD_ATOMIC | ibverbs.IBV_QP_MIN_RNR_TIMER},
		{ibverbs.IBV_QPS_RTS, ibverbs.IBV_QP_TIMEOUT | ibverbs.IBV_QP_RETRY_CNT | ibverbs.IBV_QP_RNR_RETRY | ibverbs.IBV_QP_SQ_PSN |
			ibverbs.IBV_QP_MAX_QP_RD_ATOMIC},
	} {
		attr.QPState = step.to
		if err := ibverbs.ModifyQP(qp, &attr, ibverbs.IBV_QP_STATE|step.mask); err != nil {
			return fmt.Errorf("modify_qp to %v on port %d with GID %d: %w", step.to, number, index, err)
		}
	}
	return nil
}

// anyPort returns a port with its number: one that is active if there is any.
func anyPort(ctx *ibverbs.Context) (number uint8, port ibverbs.PortAttr, err error) {
	var device ibverbs.DeviceAttr
	if err := ibverbs.QueryDevice(ctx, &device); err != nil {
		return 0, port, fmt.Errorf("query_device: %w", err)
	}
	for number = device.PhysPortCnt; number > 0; number-- {
		if err := ibverbs.QueryPort(ctx, number, &port); err != nil {
			return 0, port, fmt.Errorf("query_port %d: %w", number, err)
		}
		if port.State == ibverbs.IBV_PORT_ACTIVE {
			return number, port, nil
		}
	}
	return 1, port, nil // which was queried last
}

// anyGID returns an address of a port and its index, which paths have 8 bits for.
func anyGID(ctx *ibverbs.Context, port uint8, length int32) (gid ibverbs.GID, index int32, err error) {
	for index := range min(length, 1<<8) {
		if err := ibverbs.QueryGID(ctx, port, index, &gid); err != nil {
			return gid, 0, fmt.Errorf("query_gid %d of port %d: %w", index, port, err)
		}
		if gid != (ibverbs.GID{}) {
			return gid, index, nil
		}
	}
	return gid, 0, fmt.Errorf("port %d has no GID", port)
}
