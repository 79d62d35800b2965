//go:build linux && cgo

package sim_test

import (
	"path/filepath"
	"testing"

	"github.com/goverbs/goverbs/sim/internal/fabric"
	"github.com/goverbs/goverbs/sim/internal/link"
	"github.com/goverbs/goverbs/sim/internal/sysfs"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// answers receives what a process answers to another one, which the test plays.
type answers chan *fabric.Message

func (a answers) Deliver(m *fabric.Message) { a <- m }
func (answers) Lost(uint32)                 {}

// What comes for devices that are gone is refused, also when there are new ones
// that nobody has opened yet.
func TestMessageForDevicesThatAreGone(t *testing.T) {
	var qpn uint32 // tells where this process is
	t.Run("first devices", func(t *testing.T) {
		newFabric(t, nil)
		qpn = ibverbs.QPNum(openNode(t, "sim_mlx5_0").newEnd(endConfig{}).qp)
	})
	newFabric(t, nil)
	inbox := make(answers, 1)
	peer, err := link.Join(filepath.Join(sysfs.Base(), "net"), inbox)
	if err != nil {
		t.Fatal(err)
	}
	peer.Send(qpn>>16, &fabric.Message{Header: fabric.Header{ID: 7, AnswerTo: peer.Slot, Op: fabric.OpSend, QPN: qpn, Origin: fabric.Origin{Type: fabric.RC}}})
	if m := <-inbox; !m.IsAnswer || m.ID != 7 {
		t.Errorf("answer %+v", m)
	}
}
