package rdma

import (
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/internal/handle"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// addressHandle is the device's name for a way (struct ibv_ah).
type addressHandle struct {
	h     *handle.Handle
	raw   capi.Ptr[ibverbs.AH]
	path  Path
	users int // peers; guarded by Domain.ahMu
}

// addressHandle returns the handle of a path, to be given back by releaseHandle.
// The caller holds the domain.
func (d *Domain) addressHandle(path Path) (*addressHandle, error) {
	if ah := d.knownHandle(path, nil); ah != nil {
		return ah, nil
	}
	attr := path.toC()
	raw, err := ibverbs.CreateAH(d.pd, &attr)
	if err != nil {
		return nil, err
	}
	device := d.dev.id.name // destroying must not refer to the domain
	ah := &addressHandle{raw: capi.PtrTo(raw), path: path}
	ah.h = handle.New(handle.Spec{
		Kind: "AH", Name: fmt.Sprintf("%s, %s", device, path.DestGID), Log: d.dev.logger, Parents: []*handle.Handle{d.h},
		Destroy: func() error { return opError("destroy_ah", device, ibverbs.DestroyAH(raw)) },
	})
	known := d.knownHandle(path, ah)
	if known == ah {
		return ah, nil
	}
	if err := ah.h.Close(); err != nil { // somebody else was faster
		return nil, errors.Join(err, d.releaseHandle(known))
	}
	return known, nil
}

// knownHandle returns the handle of a path for one user more, or makes ah that.
func (d *Domain) knownHandle(path Path, ah *addressHandle) *addressHandle {
	d.ahMu.Lock()
	defer d.ahMu.Unlock()
	if known := d.ahs[path]; known != nil {
		ah = known
	}
	if ah == nil {
		return nil
	}
	if d.ahs == nil {
		d.ahs = make(map[Path]*addressHandle)
	}
	d.ahs[path] = ah
	ah.users++
	return ah
}

// releaseHandle ends the handle with the last peer that uses it, and after the
// requests that do.
func (d *Domain) releaseHandle(ah *addressHandle) error {
	d.ahMu.Lock()
	ah.users--
	last := ah.users == 0
	if last {
		delete(d.ahs, ah.path)
	}
	d.ahMu.Unlock()
	if !last {
		return nil
	}
	return ah.h.Close()
}
