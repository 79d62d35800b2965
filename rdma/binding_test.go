package rdma

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/handle"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
)

// A request that was not posted after all leaves a window as it was, key and
// memory.
func TestBindThatIsNotPostedChangesNothing(t *testing.T) {
	for _, typ := range []WindowType{WindowType1, WindowType2} {
		t.Run(typ.String(), func(t *testing.T) {
			d := newFakeFabric().domain(t, nil)
			first, second := mustAlloc(t, d, 8, nil), mustAlloc(t, d, 8, nil)
			w := &window{typ: typ, dom: d, raw: &ibverbs.MW{RKey: 0x1ff}, key: 0x1ff, h: handle.New(handle.Spec{Kind: "Window"})}
			end := func(b *binding) {
				var over leftovers
				b.end(false, &over)
				over.end()
			}
			do := func(view View, posted bool) {
				t.Helper()
				b := binding{w: w, view: view}
				if err := b.begin(); err != nil {
					t.Fatal(err)
				}
				if !posted {
					b.takeBack()
				}
				end(&b)
			}
			state := func(key uint32, bound View) {
				t.Helper()
				if w.key != key || w.bound != bound {
					t.Errorf("key %#x, bound to %v; want %#x and %v", w.key, w.bound, key, bound)
				}
			}
			do(first.View(), true)
			state(0x100, first.View())
			do(second.View(), false)
			state(0x100, first.View())
			mustClose(t, second)
			<-second.Released() // nothing holds it

			// While one is in flight there is no other.
			one, two := binding{w: w, view: first.View()}, binding{w: w, view: first.View()}
			if err := one.begin(); err != nil {
				t.Fatal(err)
			}
			if err := two.begin(); !errors.Is(err, errBinding) {
				t.Errorf("a window was bound twice at a time: %v", err)
			}
			one.takeBack()
			end(&one)
			state(0x100, first.View())

			mustClose(t, first)
			do(View{}, false)
			state(0x100, first.View())
			select {
			case <-first.Released():
				t.Error("what it is bound to is gone")
			default:
			}
			do(View{}, true)
			<-first.Released()
			if err := w.h.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
