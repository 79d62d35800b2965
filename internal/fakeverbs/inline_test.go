//go:build linux && cgo

package fakeverbs

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/goverbs/goverbs/capi"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/zz_generated/efadv"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
	"github.com/goverbs/goverbs/zz_generated/mlx5dv"
)

// Case is an inline function of the headers and our counterpart.
type Case struct {
	Name    string
	Ours    any // the Go function
	Params  []Param
	Pass    []int // which parameters reach the operation, in order
	MayLack bool  // fails with EOPNOTSUPP if the provider has no such operation
	Sized   bool  // passes the size of a structure on, last
}

// Param is a parameter of a function in C.
type Param struct {
	Name string
	Size int // in bytes
}

// slots says where objects of a type lie in a world. Those that are not here
// and not handles are plain memory.
var slots = map[reflect.Type]int{
	reflect.TypeFor[*ibverbs.Flow]():        slotFlow,
	reflect.TypeFor[*ibverbs.QPEx]():        slotQPEx,
	reflect.TypeFor[*ibverbs.CQEx]():        slotCQEx,
	reflect.TypeFor[*ibverbs.DM]():          slotDM,
	reflect.TypeFor[*ibverbs.WQ]():          slotWQ,
	reflect.TypeFor[*mlx5dv.QPEx]():         slotInterface,
	reflect.TypeFor[*efadv.CQ]():            slotInterface,
	reflect.TypeFor[*efadv.QP]():            slotInterface,
	reflect.TypeFor[*ibverbs.QP]():          slotOthers + 0,
	reflect.TypeFor[*ibverbs.CQ]():          slotOthers + 1,
	reflect.TypeFor[*ibverbs.SRQ]():         slotOthers + 2,
	reflect.TypeFor[*ibverbs.PD]():          slotOthers + 3,
	reflect.TypeFor[*ibverbs.MW]():          slotOthers + 4,
	reflect.TypeFor[*ibverbs.XRCD]():        slotOthers + 5,
	reflect.TypeFor[*ibverbs.TD]():          slotOthers + 6,
	reflect.TypeFor[*ibverbs.RWQIndTable](): slotOthers + 7,
	reflect.TypeFor[*ibverbs.Counters]():    slotOthers + 8,
	reflect.TypeFor[*ibverbs.FlowAction]():  slotOthers + 9,
}

// Objects that no function is given.
const (
	slotMR     = slotOthers + 10 + iota
	slotResult // what operations that make something return
)

// A variant prepares what a function is called with, so that it takes one of
// its ways.
type variant struct {
	name    string
	present uint32
	result  uint64
	prepare func(args []uint64)
}

func at[T any](a uint64) *T { return (*T)(address(a)) }

// variants returns those of a function. At least, its operation returns success
// or no object, failure, and an object in turn.
func variants(w *world, c Case) (list []variant) {
	object := w.slot(slotResult)
	results := []uint64{0, uint64(syscall.EINVAL), object}
	if typ := reflect.TypeOf(c.Ours); typ.NumOut() > 0 {
		switch typ.Out(0).Kind() {
		case reflect.Pointer:
			results = []uint64{0, object}
		case reflect.Bool:
			results = []uint64{0, 1}
		}
	}
	for _, result := range results {
		list = append(list, variant{fmt.Sprintf("result %#x", min(result, 0xfff)), allOps, result, nil})
	}
	if c.MayLack {
		list = append(list, variant{"too old", tooOldForOps, object, nil}, variant{"no ops", noOps, object, nil})
	}
	with := func(name string, present uint32, result uint64, prepare func(a []uint64)) {
		list = append(list, variant{name, present, result, prepare})
	}
	switch c.Name {
	case "ibv_query_port", "ibv_query_device_ex":
		for _, present := range []uint32{tooOldForOps, noOps} {
			with("legacy", present, 0, nil)
			with("legacy fails", present, uint64(syscall.EIO), nil)
		}
		with("not supported", allOps, uint64(syscall.EOPNOTSUPP), nil)
		with("not there", allOps, uint64(syscall.ENOSYS), nil)
		if c.Name == "ibv_query_device_ex" {
			input := func(mask uint32) func(a []uint64) {
				return func(a []uint64) { at[ibverbs.QueryDeviceExInput](a[1]).CompMask = mask }
			}
			with("empty input", allOps, 0, input(0))
			with("unknown input", allOps, 0, input(1))
			with("no input", allOps, 0, func(a []uint64) { a[1] = 0 })
		}
	case "ibv_create_qp_ex":
		for mask := range ibverbs.QPInitAttrMask(8) {
			with(fmt.Sprint("mask ", mask), allOps, object, func(a []uint64) { at[ibverbs.QPInitAttrEx](a[1]).CompMask = mask })
			with(fmt.Sprint("too old, mask ", mask), tooOldForOps, object, func(a []uint64) { at[ibverbs.QPInitAttrEx](a[1]).CompMask = mask })
		}
	case "ibv_create_srq_ex":
		for mask := range ibverbs.SRQInitAttrMask(32) {
			for typ := range ibverbs.SRQType(3) {
				prepare := func(a []uint64) {
					attr := at[ibverbs.SRQInitAttrEx](a[1])
					attr.CompMask, attr.SRQType = mask, typ
				}
				with(fmt.Sprint("mask ", mask, typ), allOps, object, prepare)
				with(fmt.Sprint("too old, mask ", mask, typ), tooOldForOps, object, prepare)
			}
		}
	case "ibv_create_wq", "ibv_post_srq_ops":
		with("too old", tooOldForOps, object, nil)
		with("no ops", noOps, object, nil)
	case "ibv_alloc_mw":
		with("no ops", noOps, object, func([]uint64) { *at[uint64](w.context + uint64(allocMWOffset)) = 0 })
	case "ibv_bind_mw":
		for typ := range uint32(3) {
			for shape := range 8 {
				with(fmt.Sprint("type ", typ, " shape ", shape), allOps, 0, func(a []uint64) {
					mw, info := at[ibverbs.MW](a[1]), &at[ibverbs.MWBind](a[2]).BindInfo
					mw.Type = ibverbs.MWType(typ)
					mw.PD = capi.Ptr[ibverbs.PD](w.slot(slots[reflect.TypeFor[*ibverbs.PD]()]))
					*info = ibverbs.MWBindInfo{}
					if shape&1 != 0 {
						mr := w.slot(slotMR)
						info.MR = capi.Ptr[ibverbs.MR](mr)
						at[ibverbs.MR](mr).PD = mw.PD
						if shape == 7 {
							at[ibverbs.MR](mr).PD++
						}
					}
					info.Addr, info.Length = uint64(shape&2), uint64(shape&4)
				})
			}
		}
	case "ibv_is_qpt_supported":
		list = nil
		for qpt := range uint64(32) {
			with(fmt.Sprint("type ", qpt), allOps, 0, func(a []uint64) { a[0], a[1] = 0x5a5a1234, qpt })
		}
	case "mlx5dv_set_eth_seg":
		list = nil
		for _, n := range []uint64{0, 2, 18, 60} {
			with(fmt.Sprint(n, " bytes"), allOps, 0, func(a []uint64) { a[3] = n })
		}
	case "mlx5dv_ts_to_ns":
		list = nil
		for _, ts := range []uint64{0, 1, 1000, 1 << 40, 1 << 62, 1<<63 + 5, ^uint64(0)} {
			for _, mask := range []uint64{0xffff, 1<<48 - 1, ^uint64(0)} {
				with(fmt.Sprint("at ", ts), allOps, 0, func(a []uint64) {
					*at[mlx5dv.ClockInfo](a[0]) = mlx5dv.ClockInfo{Nsec: 1 << 50, LastCycles: 1 << 40, Frac: 77, Mult: 12345, Shift: 21, Mask: mask}
					a[1] = ts
				})
			}
		}
	}
	return list
}

// allocMWOffset is where a context has that operation: its operations come after
// its device.
const allocMWOffset = unsafe.Sizeof(capi.Addr(0)) + unsafe.Offsetof(ibverbs.ContextOps{}.AllocMW)

// grown lists structures of which ours are larger than those of the oldest
// headers that are tested: the first bytes are compared, not the size.
var grown = map[string]int{"ibv_query_port": 48, "ibv_query_device_ex": 384}

// Every inline function of the headers and ours call the same operation with
// the same arguments, return the same, and leave the same in memory.
func TestInlineFunctionsEqualTheHeaders(t *testing.T) {
	if os.Getenv(childEnv) == "" {
		inChild(t)
		return
	}
	arena, err := capi.NewArena(1 << 16)
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	w, err := newWorld(arena)
	if err != nil {
		t.Fatal(err)
	}
	var headers library
	for _, name := range libraries {
		if headers, err = connect(name); err != nil {
			t.Fatal(err)
		}
	}
	compared := 0
	for i, c := range cases {
		if !w.run(c, variants(w, c)[0], func(args []uint64) outcome {
			_, _, ok := headers.call(i, args)
			return outcome{done: ok}
		}).done {
			t.Logf("%s: not in the headers of this machine", c.Name)
			continue
		}
		compared++
		for _, v := range variants(w, c) {
			theirs := w.run(c, v, func(args []uint64) outcome {
				r, errno, _ := headers.call(i, args)
				return outcome{raw: r, err: errno}
			})
			ours := w.run(c, v, func(args []uint64) outcome { return callOurs(c, args) })
			if diff := differ(c, theirs, ours); diff != "" {
				t.Errorf("%s, %s: %s", c.Name, v.name, diff)
			}
		}
	}
	fmt.Printf("%s%d of %d\n", comparedPrefix, compared, len(cases))
}

// outcome is all that can be seen of a call.
type outcome struct {
	done   bool            // the headers have the function
	raw    uint64          // the result in C
	err    error           // errno in C, the error in Go
	values []reflect.Value // the results in Go
	call   call
	memory []byte
}

// args returns distinct arguments: objects, memory, and numbers whose every
// byte differs.
func (w *world) args(c Case) []uint64 {
	var args []uint64
	typ := reflect.TypeOf(c.Ours)
	for i, p := range c.Params {
		in := typ.In(i)
		slot, isObject := slots[in]
		switch {
		case in == reflect.TypeFor[*ibverbs.Context]():
			args = append(args, w.context)
		case isObject:
			args = append(args, w.slot(slot))
		case in.Kind() == reflect.Pointer || in.Kind() == reflect.UnsafePointer || in == reflect.TypeFor[capi.Addr]():
			args = append(args, uint64(uintptr(unsafe.Pointer(&w.scratch[i*slotSize]))))
		default:
			n := uint64(0x1121314151617181) + uint64(i)*0x0101010101010101
			args = append(args, n&mask(p.Size))
		}
	}
	return args
}

func mask(size int) uint64 { return ^uint64(0) >> (64 - 8*size) }

// run calls in a world that is the same each time.
func (w *world) run(c Case, v variant, f func([]uint64) outcome) outcome {
	for i := range w.scratch {
		w.scratch[i] = byte(i*7 + i>>8)
	}
	w.reset(v.present, v.result)
	args := w.args(c)
	if v.prepare != nil {
		v.prepare(args)
	}
	o := f(args)
	o.call = last()
	o.memory = append(append([]byte(nil), w.scratch...), unsafe.Slice((*byte)(address(w.objects)), slotCount*slotSize)...)
	return o
}

func callOurs(c Case, args []uint64) (o outcome) {
	f := reflect.ValueOf(c.Ours)
	var in []reflect.Value
	for i, a := range args {
		t := f.Type().In(i)
		v := reflect.New(t).Elem()
		switch t.Kind() {
		case reflect.Pointer:
			v = reflect.NewAt(t.Elem(), address(a))
			if a == 0 {
				v = reflect.Zero(t)
			}
		case reflect.UnsafePointer:
			v.SetPointer(address(a))
		case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
			shift := 64 - t.Bits()
			v.SetInt(int64(a) << shift >> shift)
		default:
			v.SetUint(a)
		}
		in = append(in, v)
	}
	o.values = f.Call(in)
	if n := len(o.values); n > 0 {
		if err, ok := o.values[n-1].Interface().(error); ok {
			o.err = err
		}
	}
	return o
}

// differ says how our outcome is not theirs, "" if it is.
func differ(c Case, theirs, ours outcome) string {
	if theirs.call.count != ours.call.count || theirs.call.count > 0 && theirs.call.op != ours.call.op {
		return fmt.Sprintf("headers made %d calls, last of %d; ours %d, %d", theirs.call.count, theirs.call.op, ours.call.count, ours.call.op)
	}
	if theirs.call.count > 0 {
		for i, p := range c.Pass {
			if m := mask(c.Params[p].Size); theirs.call.args[i]&m != ours.call.args[i]&m {
				return fmt.Sprintf("argument %d: headers pass %#x, ours %#x", i, theirs.call.args[i]&m, ours.call.args[i]&m)
			}
		}
		if n := len(c.Pass); c.Sized && theirs.call.args[n] != ours.call.args[n] {
			return fmt.Sprintf("headers pass size %d, ours %d", theirs.call.args[n], ours.call.args[n])
		}
	}
	if want, got := expected(c, theirs), fmt.Sprint(ours.results()...); want != got {
		return fmt.Sprintf("headers return %s, ours %s", want, got)
	}
	for i := range theirs.memory {
		arg, off := i/slotSize, i%slotSize
		if n := grown[c.Name]; n > 0 && arg < len(c.Params) && off >= n {
			continue
		}
		if theirs.memory[i] != ours.memory[i] {
			return fmt.Sprintf("memory of argument %d differs at byte %d: headers %#x, ours %#x", arg, off, theirs.memory[i], ours.memory[i])
		}
	}
	return ""
}

func (o outcome) results() (list []any) {
	for _, v := range o.values {
		switch {
		case v.Type() == reflect.TypeFor[error]():
			list = append(list, fmt.Sprint(v.Interface()), " ")
		case v.Kind() == reflect.Pointer:
			list = append(list, fmt.Sprintf("%#x", v.Pointer()), " ")
		case v.CanInt():
			list = append(list, fmt.Sprintf("%#x", uint64(v.Int())), " ")
		case v.CanUint():
			list = append(list, fmt.Sprintf("%#x", v.Uint()), " ")
		default:
			list = append(list, fmt.Sprint(v.Interface()), " ")
		}
	}
	return list
}

// expected spells the C outcome as the Go function has to return it.
func expected(c Case, o outcome) string {
	typ := reflect.TypeOf(c.Ours)
	if typ.NumOut() == 0 {
		return ""
	}
	out := typ.Out(0)
	value := func() string {
		switch out.Kind() {
		case reflect.Pointer, reflect.UnsafePointer:
			return fmt.Sprintf("%#x", o.raw)
		case reflect.Bool:
			return fmt.Sprint(o.raw&1 != 0)
		case reflect.Int32, reflect.Int:
			return fmt.Sprintf("%#x", uint64(int64(int32(o.raw))))
		}
		return fmt.Sprintf("%#x", o.raw&mask(int(out.Size())))
	}
	text := func(err error) string { return fmt.Sprint(err) }
	switch {
	case typ.NumOut() == 1 && out == reflect.TypeFor[error]() && typ.NumIn() > 0 && isVoid[c.Name]:
		return text(nil) + " "
	case typ.NumOut() == 1 && out == reflect.TypeFor[error]():
		return text(capi.ValueError(int64(int32(o.raw)), o.err)) + " "
	case typ.NumOut() == 1:
		return value() + " "
	case out.Kind() == reflect.Pointer && o.raw == 0:
		return value() + " " + text(capi.NullError(o.err)) + " "
	case out.Kind() == reflect.Int:
		n, err := capi.CountError(int64(o.raw), o.err)
		if c.Name != "ibv_query_gid_table" { // whose result is 64 bits wide
			n, err = capi.CountError(int64(int32(o.raw)), o.err)
		}
		return fmt.Sprintf("%#x ", uint64(n)) + text(err) + " "
	}
	return value() + " " + text(nil) + " "
}

// isVoid lists functions whose only error is a missing library.
var isVoid = map[string]bool{"mlx5dv_get_export_sizes": true}

// libraries are those with functions that inline functions call, then the one
// that is compiled with the headers.
var libraries = []string{"libibverbs.so.1", "libmlx5.so.1", "libheaders.so"}

const (
	childEnv       = "FAKEVERBS_CHILD"
	comparedPrefix = "compared with the headers: "
)

// inChild runs the test again in a process that finds our recorders where
// rdma-core's libraries are looked for.
func inChild(t *testing.T) {
	dir := t.TempDir()
	for _, name := range libraries {
		build(t, filepath.Join(dir, name), "testdata/zz_real.c", "testdata/zz_library.c", "testdata/forward.c")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), childEnv+"=1", "LD_LIBRARY_PATH="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var compared, all int
	for line := range strings.Lines(string(out)) {
		if text, ok := strings.CutPrefix(line, comparedPrefix); ok {
			if _, err := fmt.Sscanf(text, "%d of %d", &compared, &all); err != nil {
				t.Fatal(err)
			}
		}
	}
	if compared == 0 {
		rdmatest.Skip(t, "rdma-core's headers are not installed")
	}
	t.Logf("%d of %d inline functions compared", compared, all)
}

// build compiles a shared library, with the flags that cgo gives to C. Headers
// of another rdma-core are compared by
//
//	CGO_CFLAGS="-Itree -DGOVERBS_HEADERS=64" go test ./internal/fakeverbs
func build(t *testing.T, library string, sources ...string) {
	t.Helper()
	args := append([]string{"-shared", "-fPIC", "-I.", "-o", library}, strings.Fields(os.Getenv("CGO_CFLAGS"))...)
	args = append(args, sources...)
	if out, err := exec.Command(cmp.Or(os.Getenv("CC"), "gcc"), args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func TestMain(m *testing.M) { rdmatest.Main(m) }
