package facts

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPortableLeavesOutWhatHoldsAForeignType(t *testing.T) {
	const text = `rdma-core 44.0
target linux/amd64

system
typedef mutex_t union $mutex_t
typedef FILE struct _IO_FILE
union $mutex_t 40 8
struct _IO_FILE 216 8
struct timespec 16 8

header h.h
struct context 48 8
	0 lock [1]mutex_t
	40 fd int
struct holder 56 8
	0 context struct context
	48 n int
struct plain 32 8
	0 context *struct context
	8 file *FILE
	16 at struct timespec
`
	a, err := Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	other := strings.NewReplacer(
		"amd64", "arm64", "union $mutex_t 40", "union $mutex_t 48", "_IO_FILE 216", "_IO_FILE 224",
		"context 48 8", "context 56 8", "40 fd", "48 fd", "holder 56", "holder 64", "48 n", "56 n",
	).Replace(text)
	b, err := Read(strings.NewReader(other))
	if err != nil {
		t.Fatal(err)
	}
	pa, pb, left := Portable(a, b)
	if d := cmp.Diff([]string{"struct context", "struct holder"}, left); d != "" {
		t.Errorf("left out: -want +got:\n%s", d)
	}
	if d := cmp.Diff([]Change(nil), Diff(pa, pb)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if len(pa.Records) != 2 || len(a.Records) != 6 {
		t.Errorf("%d of %d records are portable, want 2 of 6", len(pa.Records), len(a.Records))
	}
	same, _, left := Portable(a, a)
	if d := cmp.Diff(a, same); d != "" || left != nil {
		t.Errorf("with itself: %v\n%s", left, d)
	}
}
