package rdma

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// verbs is what finding and describing devices needs of the library, so that
// tests can put machines in its place that no test could otherwise have.
type verbs interface {
	// devices lists what is there; free gives the list back, after which only
	// devices that were opened may be used.
	devices() (list []*ibverbs.Device, free func(), err error)
	identify(*ibverbs.Device) identity
	open(*ibverbs.Device) (*ibverbs.Context, error)
	close(*ibverbs.Context) error

	queryDevice(*ibverbs.Context) (*ibverbs.DeviceAttrEx, error)
	queryPort(ctx *ibverbs.Context, port int) (*ibverbs.PortAttr, error)
	queryPortSpeed(ctx *ibverbs.Context, port int) (Speed, error)
	queryGIDTable(ctx *ibverbs.Context, entries int) ([]ibverbs.GIDEntry, error)
	queryGID(ctx *ibverbs.Context, port, index int) (ibverbs.GIDEntry, error)
	queryPKey(ctx *ibverbs.Context, port, index int) (uint16, error)
	compVectors(*ibverbs.Context) int

	pds
}

// identity is what a device is known by before it is opened.
type identity struct {
	name      string // "mlx5_0"
	uverbs    string // "uverbs0"
	sysfs     sysfs  // its folder in the infiniband class
	node      NodeType
	transport Transport
}

// library is libibverbs.
type library struct{}

// setEnvironment tells rdma-core's libraries what they take from the environment
// only, and the user has not said.
var setEnvironment = sync.OnceValue(func() error {
	for name, value := range map[string]string{
		// Objects of a removed device can be destroyed. The kernel has ended them
		// by itself, and answers EIO; by default libibverbs then keeps its own side
		// of them for ever.
		"RDMAV_ALLOW_DISASSOC_DESTROY": "1",
		// Devices of mlx5 put small messages into completions, from where libmlx5
		// copies them to the address that the request has. Of a DMA-buf, or of
		// memory whose addresses count from 0, that is none to write to.
		"MLX5_SCATTER_TO_CQE": "0",
	} {
		if _, chosen := os.LookupEnv(name); chosen {
			continue
		}
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return nil
})

func (library) devices() ([]*ibverbs.Device, func(), error) {
	if err := setEnvironment(); err != nil {
		return nil, nil, err
	}
	if err := spareDescriptors(); err != nil {
		return nil, nil, err
	}
	var n int32
	first, err := ibverbs.GetDeviceList(&n)
	if errors.Is(err, syscall.ENOSYS) { // the kernel has no ib_uverbs, so there is no device
		return nil, func() {}, nil
	}
	if err != nil {
		return nil, nil, err
	}
	var list []*ibverbs.Device
	for _, dev := range unsafe.Slice(first, n) {
		list = append(list, dev.Get())
	}
	return list, func() { ibverbs.FreeDeviceList(first) }, nil
}

// spareDescriptors returns an error if the process can't open what the library lists
// devices by, a socket, a folder and a file at a time: it would leave them out
// without a word.
func spareDescriptors() error {
	for range 3 {
		fd, err := unix.Open("/", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		switch {
		case err == nil:
			defer unix.Close(fd)
		case err == unix.EMFILE || err == unix.ENFILE:
			return err
		}
	}
	return nil
}

func (library) identify(dev *ibverbs.Device) identity {
	return identity{
		name:      capi.GoString(dev.Name[:]),
		uverbs:    capi.GoString(dev.DevName[:]),
		sysfs:     sysfs(capi.GoString(dev.IBDevPath[:])),
		node:      NodeType(dev.NodeType),
		transport: Transport(dev.TransportType),
	}
}

func (library) open(dev *ibverbs.Device) (*ibverbs.Context, error) {
	ctx, err := ibverbs.OpenDevice(dev)
	if errors.Is(err, syscall.ENOENT) {
		// The library was refused the device's file, searched /dev for another,
		// and reports the end of that search. What it was refused for matters.
		file, openErr := os.OpenFile("/dev/infiniband/"+capi.GoString(dev.DevName[:]), os.O_RDWR, 0)
		if openErr != nil {
			return nil, openErr.(*os.PathError).Err
		}
		file.Close()
	}
	return ctx, err
}

func (library) close(ctx *ibverbs.Context) error { return ibverbs.CloseDevice(ctx) }

func (library) queryDevice(ctx *ibverbs.Context) (*ibverbs.DeviceAttrEx, error) {
	attr := new(ibverbs.DeviceAttrEx)
	return attr, ibverbs.QueryDeviceEx(ctx, nil, attr)
}

func (library) queryPort(ctx *ibverbs.Context, port int) (*ibverbs.PortAttr, error) {
	attr := new(ibverbs.PortAttr)
	return attr, ibverbs.QueryPort(ctx, uint8(port), attr)
}

func (library) queryPortSpeed(ctx *ibverbs.Context, port int) (Speed, error) {
	var n uint64
	err := ibverbs.QueryPortSpeed(ctx, uint32(port), &n)
	return Speed(n) * 100 * Megabit, err
}

func (library) queryGIDTable(ctx *ibverbs.Context, entries int) ([]ibverbs.GIDEntry, error) {
	if entries <= 0 {
		return nil, nil
	}
	table := make([]ibverbs.GIDEntry, entries)
	n, err := ibverbs.QueryGIDTable(ctx, &table[0], uint64(len(table)), 0)
	if err != nil {
		return nil, err
	}
	return table[:n], nil
}

func (library) queryGID(ctx *ibverbs.Context, port, index int) (ibverbs.GIDEntry, error) {
	var entry ibverbs.GIDEntry
	err := ibverbs.QueryGIDEx(ctx, uint32(port), uint32(index), &entry, 0)
	return entry, err
}

func (library) queryPKey(ctx *ibverbs.Context, port, index int) (uint16, error) {
	var key capi.Be16
	err := ibverbs.QueryPKey(ctx, uint8(port), int32(index), &key)
	return key.Host(), err
}

func (library) compVectors(ctx *ibverbs.Context) int { return int(ibverbs.ContextNumCompVectors(ctx)) }
