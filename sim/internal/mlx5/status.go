package mlx5

import "github.com/goverbs/goverbs/sim/internal/fabric"

// syndrome is how a completion with error says why.
type syndrome struct{ code, vendor uint8 }

// syndromes maps a request's end to the syndrome that libmlx5 turns into the
// same status, and to the vendor's code that devices are seen to report with
// it.
var syndromes = map[fabric.Status]syndrome{
	fabric.LocalLengthError:     {0x01, 0x6a},
	fabric.LocalQPOpError:       {0x02, 0x68},
	fabric.LocalProtectionError: {0x04, 0x51},
	fabric.FlushError:           {0x05, 0xf9},
	fabric.BindError:            {0x06, 0x6e},
	fabric.BadResponseError:     {0x10, 0x74},
	fabric.LocalAccessError:     {0x11, 0x52},
	fabric.RemoteInvalidRequest: {0x12, 0x8a},
	fabric.RemoteAccessError:    {0x13, 0x88},
	fabric.RemoteOperationError: {0x14, 0x89},
	fabric.RetryExceeded:        {0x15, 0x81},
	fabric.RNRRetryExceeded:     {0x16, 0x87},
	fabric.RemoteAborted:        {0x22, 0x8b},
}
