package mlx5

import "github.com/goverbs/goverbs/sim/internal/fabric"

// syndrome is how a completion with error says why, with the vendor's code where
// a request was posted and where it arrived.
type syndrome struct{ code, requester, responder uint8 }

// syndromes maps a request's end to the syndrome that libmlx5 turns into the
// same status: enum in mlx5dv.h, and mlx5_handle_error_cqe of rdma-core's
// providers/mlx5/cq.c.
//
// The vendor's codes are documented nowhere. These are what devices were seen to
// report, in public: 0x68 in openucx/ucx#1151 and, of a length, by the kernel's
// mlx5e ("syndrome 0x1, vendor syndrome 0x68"); 0x51 in linux-rdma/perftest#173;
// 0x32 in openucx/ucx#9167; 0xf9 in linux-nvme/nvme-cli#3268; 0x25 of the
// kernel's own UMRs; 0x8a in charmplusplus/charm#2532; 0x88 in
// openucx/ucx#1569; 0x89 in openucx/ucx#5472; 0x81 in openucx/ucx#6669; 0x87 in
// dumps of libmlx5 ("00008716"). Where no report is known the code is 0.
var syndromes = map[fabric.Status]syndrome{
	fabric.LocalLengthError:     {code: 0x01, requester: 0x68},
	fabric.LocalQPOpError:       {code: 0x02, requester: 0x68},
	fabric.LocalProtectionError: {code: 0x04, requester: 0x51, responder: 0x32},
	fabric.FlushError:           {code: 0x05, requester: 0xf9, responder: 0xf9},
	fabric.BindError:            {code: 0x06, requester: 0x25},
	fabric.BadResponseError:     {code: 0x10},
	fabric.LocalAccessError:     {code: 0x11},
	fabric.RemoteInvalidRequest: {code: 0x12, requester: 0x8a},
	fabric.RemoteAccessError:    {code: 0x13, requester: 0x88},
	fabric.RemoteOperationError: {code: 0x14, requester: 0x89},
	fabric.RetryExceeded:        {code: 0x15, requester: 0x81},
	fabric.RNRRetryExceeded:     {code: 0x16, requester: 0x87},
	fabric.RemoteAborted:        {code: 0x22},
	fabric.GeneralError:         {code: 0xff}, // one that libmlx5 does not know
}
