package raw_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	_ "github.com/goverbs/goverbs/backends/efa"
	_ "github.com/goverbs/goverbs/backends/verbs"
	"github.com/goverbs/goverbs/internal/rdmatest"
	_ "github.com/goverbs/goverbs/internal/rdmatest/testdevices"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/rdma/raw"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

func TestMain(m *testing.M) { rdmatest.Main(m) }

func ExampleContext() {
	dev, err := rdma.Open("mlx5_0", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer dev.Close()
	ctx, release, err := raw.Context(dev)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer release()
	fmt.Println(ibverbs.ContextNumCompVectors(ctx))
}

// objects are one of each kind.
type objects struct {
	dev *rdma.Device
	dom *rdma.Domain
	mem *rdma.Memory
	cq  *rdma.CQ
	qp  *rdma.QP
}

func newObjects(t *testing.T) *objects {
	t.Helper()
	o := new(objects)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	name := rdmatest.Devices(t, 1)[0]
	rdmatest.Needs(t, name, rdmatest.Connections)
	var err error
	o.dev, err = rdma.Open(name, nil)
	must(err)
	o.dom, err = o.dev.Domain("")
	must(err)
	o.mem, err = o.dom.Alloc(4096, nil)
	must(err)
	o.cq, err = o.dev.CreateCQ(nil)
	must(err)
	o.qp, err = o.dom.CreateQP(&rdma.QPConfig{CQ: o.cq})
	must(err)
	return o
}

func (o *objects) close(t *testing.T) {
	t.Helper()
	for _, c := range []interface{ Close() error }{o.dev, o.dom, o.mem, o.cq, o.qp} {
		if err := c.Close(); err != nil {
			t.Errorf("closing %T: %v", c, err)
		}
	}
}

func TestRawObjectsAreThoseOfTheFacade(t *testing.T) {
	o := newObjects(t)
	defer o.close(t)
	ctx, release, err := raw.Context(o.dev)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if n := ibverbs.ContextNumCompVectors(ctx); int(n) != o.dev.Info().NumCompVectors {
		t.Errorf("%d completion vectors, want %d", n, o.dev.Info().NumCompVectors)
	}
	pd, release, err := raw.PD(o.dom)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	mr, release, err := raw.MR(o.mem)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	v := o.mem.View()
	if mr.LKey != v.LKey() || mr.Length != v.Size() || uint64(mr.Addr) != v.Addr() || mr.PD.Get() != pd || mr.Context.Get() != ctx {
		t.Errorf("memory region %+v of %v", *mr, v)
	}
	cq, release, err := raw.CQ(o.cq)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if n := ibverbs.CQDepth(cq); int(n) != o.cq.Depth() {
		t.Errorf("depth %d, want %d", n, o.cq.Depth())
	}
	qp, release, err := raw.QP(o.qp)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if n := ibverbs.QPNum(qp); n != o.qp.QPN() {
		t.Errorf("QPN %d, want %d", n, o.qp.QPN())
	}
}

func TestRawObjectOutlivesCloseUntilReleased(t *testing.T) {
	o := newObjects(t)
	mr, release, err := raw.MR(o.mem)
	if err != nil {
		t.Fatal(err)
	}
	o.close(t)
	select {
	case <-o.mem.Released():
		t.Fatal("deregistered under the pointer")
	default:
	}
	if mr.Length != 4096 {
		t.Errorf("length %d", mr.Length)
	}
	release()
	<-o.mem.Released()
	release()

	for name, err := range map[string]error{
		"Context": errOf(raw.Context(o.dev)),
		"PD":      errOf(raw.PD(o.dom)),
		"MR":      errOf(raw.MR(o.mem)),
		"CQ":      errOf(raw.CQ(o.cq)),
		"QP":      errOf(raw.QP(o.qp)),
	} {
		if !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s of a closed object: %v", name, err)
		}
	}
}

func errOf[T any](c *T, release func(), err error) error {
	if c != nil || release != nil {
		return errors.New("a pointer beside the error")
	}
	return err
}
