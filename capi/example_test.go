package capi_test

import (
	"fmt"

	"github.com/goverbs/goverbs/capi"
)

// entry and request stand for the mirrors of the raw bindings.
type entry struct {
	addr   uint64
	length uint32
}

type request struct {
	list capi.Ptr[entry]
	n    int32
}

// A request and the entry that it points to lie in C memory, where a device
// may read them after the call that posts them.
func ExampleMake() {
	arena, err := capi.NewArena(4096)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer arena.Close()
	entries, err := capi.Make[entry](arena, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	requests, err := capi.Make[request](arena, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	entries[1] = entry{addr: 0x1000, length: 64}
	requests[0] = request{list: capi.PtrTo(&entries[0]), n: 2}

	fmt.Println(requests[0].list.Slice(2)[1].length)
	// Output: 64
}
