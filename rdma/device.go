package rdma

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"

	"github.com/goverbs/goverbs/internal/handle"
	"github.com/goverbs/goverbs/rdma/backend"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// Device is an opened device (struct ibv_context). It is safe for concurrent
// use.
type Device struct {
	h      *handle.Handle
	ctx    *ibverbs.Context
	verbs  verbs
	id     identity
	be     backend.Backend
	cfg    Config     // resolved: 0 is 0
	info   DeviceInfo // as of opening
	logger *slog.Logger
	hub    *eventHub

	mu      sync.Mutex
	domains map[string]*Domain // by name, without those that are closed
	closing bool               // no more domains: Close ends those that there are
}

// openDevice opens dev for a backend. Nothing is left open if it fails.
func openDevice(v verbs, dev *ibverbs.Device, id identity, be backend.Backend, cfg *Config) (*Device, error) {
	ctx, err := v.open(dev)
	if err != nil {
		return nil, opError("open_device", id.name, err)
	}
	d, err := newDevice(v, ctx, id, be, cfg)
	if err != nil {
		return nil, errors.Join(err, opError("close_device", id.name, v.close(ctx)))
	}
	return d, nil
}

// newDevice makes a Device that owns ctx, unless it fails.
func newDevice(v verbs, ctx *ibverbs.Context, id identity, be backend.Backend, cfg *Config) (*Device, error) {
	info, err := queryDevice(v, ctx, id, be)
	if err != nil {
		return nil, err
	}
	resolved, err := deviceConfig(func(c *Config) error {
		return opError("defaults", id.name, be.Defaults(ctx, c))
	}, &info, cfg)
	if err != nil {
		return nil, err
	}
	hub := newEventHub(ctx, id.name, resolved.Logger)
	d := &Device{ctx: ctx, verbs: v, id: id, be: be, cfg: resolved, info: info, logger: resolved.Logger, hub: hub}
	d.h = handle.New(handle.Spec{
		Kind: "Device",
		Name: id.name,
		Log:  resolved.Logger,
		Destroy: func() error {
			return errors.Join(hub.close(), opError("close_device", id.name, v.close(ctx)))
		},
	})
	handle.Guard(d, d.h)
	return d, nil
}

// Name returns the device's name, such as "mlx5_0".
func (d *Device) Name() string { return d.id.name }

// Backend returns the name of the backend that drives the device.
func (d *Device) Backend() string { return d.be.Name() }

// Config returns the settings that a queue pair gets whose QPConfig says
// nothing. In it 0 is zero, and not the default.
func (d *Device) Config() Config { return d.cfg }

// Info returns what the device reported when it was opened. [Device.Query]
// asks again.
func (d *Device) Info() DeviceInfo { return d.info.clone() }

// Query asks the device and the system for its state now. That takes system calls
// and reads of files for every port and each of its partition keys: tens of
// microseconds at least, so it is not for the data path.
//
// Implements:
//
//	int ibv_query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input, struct ibv_device_attr_ex *attr)
//	int ibv_query_port(struct ibv_context *context, uint8_t port_num, struct ibv_port_attr *port_attr)
//	ssize_t ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max_entries, uint32_t flags)
//	int ibv_query_pkey(struct ibv_context *context, uint8_t port_num, int index, __be16 *pkey)
func (d *Device) Query() (DeviceInfo, error) {
	ctx, err := d.acquire("query_device")
	if err != nil {
		return DeviceInfo{}, err
	}
	defer d.release()
	return queryDevice(d.verbs, ctx, d.id, d.be)
}

// queryPort asks for the state of one port now, and for the best of its addresses
// among those that choice allows; noGID says why there is none. The caller holds
// something of the device, which may be closed.
func (d *Device) queryPort(number int, choice GIDChoice) (p PortInfo, gid GIDEntry, noGID, err error) {
	p, problems, err := queryPort(d.verbs, d.ctx, d.id, number, d.info.PortCount)
	if err != nil {
		return p, gid, nil, err
	}
	gid, noGID = p.SelectGID(choice)
	if noGID != nil && len(problems) > 0 { // which may have hidden it
		noGID = fmt.Errorf("%w: %w", problems[0], noGID)
	}
	return p, gid, noGID, nil
}

// Close ends the use of the device and closes its domains, which belong to it.
// Memory, queue pairs and completion queues stay usable until they are closed
// themselves; the device is left to others after that. Later calls return nil.
//
// Implements:
//
//	int ibv_close_device(struct ibv_context *context)
func (d *Device) Close() error {
	d.mu.Lock()
	d.closing = true
	domains := slices.Collect(maps.Values(d.domains))
	d.mu.Unlock()
	var errs []error
	for _, dom := range domains {
		errs = append(errs, dom.Close())
	}
	err := errors.Join(append(errs, d.h.Close())...)
	runtime.KeepAlive(d) // else the guard could take it for leaked
	return err
}

// acquire holds the device for the length of a call to C; release ends that.
func (d *Device) acquire(op string) (*ibverbs.Context, error) {
	if d.h.Acquire() != nil {
		return nil, opError(op, d.id.name, errDeviceClosed)
	}
	return d.ctx, nil
}

func (d *Device) release() { d.h.Release() }
