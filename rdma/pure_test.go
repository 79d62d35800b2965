package rdma

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/goverbs/goverbs/internal/handle"
)

// freed are the test memories that were destroyed.
var freed sync.Map

// testMemory returns a memory that is only a handle.
func testMemory(t *testing.T) *Memory {
	t.Helper()
	m := new(Memory)
	done := new(atomic.Bool)
	m.h = handle.New(handle.Spec{Kind: "Memory", Name: t.Name(), Destroy: func() error {
		done.Store(true)
		return nil
	}})
	freed.Store(m, done)
	t.Cleanup(func() { freed.Delete(m) })
	return m
}

// pinned tells whether a test memory still exists.
func pinned(m *Memory) bool {
	done, _ := freed.Load(m)
	return !done.(*atomic.Bool).Load()
}
