package emit

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/goverbs/goverbs/gen/internal/facts"
	"github.com/goverbs/goverbs/gen/tables"
	"github.com/goverbs/goverbs/internal/rdmatest"
)

func TestMain(m *testing.M) { rdmatest.Main(m) }

// tiny returns the files that are emitted for the facts of one header.
func tiny(t *testing.T, declarations string) (map[string][]byte, error) {
	t.Helper()
	const head = "rdma-core 1.0\ntarget linux/amd64\n\nsystem\ntypedef __be16 unsigned short\ntypedef __be32 unsigned\ntypedef __be64 unsigned long\ntypedef pthread_mutex_t union $pthread_mutex_t\ntypedef size_t unsigned long\nunion $pthread_mutex_t 40 8\n\nheader tiny.h\n"
	m, err := facts.Read(strings.NewReader(head + declarations))
	if err != nil {
		t.Fatal(err)
	}
	return Files(Options{
		Model:  m,
		Source: fstest.MapFS{},
		Base:   "example.com/tiny",
		Packages: []tables.Package{{
			Name: "tiny", Header: "tiny.h", Headers: []string{"tiny.h"}, Library: "libtiny.so.1", Prefix: []string{"tiny_"}, About: "libtiny",
		}},
	})
}

// Each case shows one thing that a header may have.
var goldens = []struct{ name, files, facts string }{
	{"bit-field", "zz_types.go zz_layout.go", "struct tiny_bits 8 4\n\t0 kind unsigned :3@0\n\t0 _ unsigned :5@3\n\t0 value unsigned :20@8\n\t4 next unsigned :12@0\n\t5 flag unsigned char :1@4\n\t6 rest unsigned char\n"},
	{"packed", "zz_types.go zz_layout.go", "struct tiny_loose 16 8\n\t0 opcode unsigned char\n\t2 imm unsigned short\n\t8 addr unsigned long\nstruct tiny_tight 11 1 packed\n\t0 opcode unsigned char\n\t1 imm __be16\n\t3 addr unsigned long\n"},
	{"flexible-array", "zz_types.go zz_layout.go", "struct tiny_names 8 8\n\t0 count unsigned long\n\t8 text []char flex\n"},
	{"anonymous-union", "zz_types.go zz_layout.go", "struct tiny_request 32 8\n\t0 id unsigned long\n\t8 _ union $tiny_request.anon1\n\t16 op union $tiny_request.op\nunion $tiny_request.anon1 4 4\n\t0 imm_data __be32\n\t0 rkey unsigned\nunion $tiny_request.op 16 8\n\t0 rdma struct $tiny_request.op.rdma\n\t0 add unsigned long\nstruct $tiny_request.op.rdma 16 8\n\t0 addr unsigned long\n\t8 rkey unsigned\n"},
	{"callback", "zz_types.go zz_funcs.go zz_shim.c zz_abi.h", "extern tiny_set_handler(dev *struct tiny_device, handler *func(dev *struct tiny_device, event int) void) int\nstruct tiny_device opaque\nstruct tiny_ops 8 8\n\t0 open *func(name *const char) int\n"},
	{"enum-with-equal-values", "zz_enums.go", "enum tiny_status 4 unsigned\n\tTINY_OK 0\n\tTINY_BAD 1\n\tTINY_FIRST_BAD 1\n\tTINY_WORSE 8\nenum tiny_access_flags 4 unsigned shifts\n\tTINY_READ 1\n\tTINY_WRITE 2\n\tTINY_BOTH 3\nenum tiny_offset 4 signed\n\tTINY_UNKNOWN -1\n"},
	{"big-endian", "zz_types.go", "struct tiny_header 16 8\n\t0 imm __be32\n\t4 port __be16\n\t8 gid [1]__be64\n"},
	{"opaque", "zz_types.go", "struct tiny_object 48 8\n\t0 ctx *struct tiny_object\n\t8 mutex pthread_mutex_t\n"},
	{"errno-styles", "zz_funcs.go zz_stub.go zz_shim.c", "extern tiny_new(size size_t) *struct tiny_object\nextern tiny_act(o *struct tiny_object) int\nextern tiny_name(o *struct tiny_object) *const char\nextern tiny_id(o *struct tiny_object) unsigned\nextern tiny_free(o *struct tiny_object) void\nstruct tiny_object opaque\n"},
	{"slot", "zz_funcs.go zz_shim.c", "inline tiny_flush(q *struct tiny_queue, n int) int slot q->ctx->ops.flush(q, n)\nstruct tiny_ctx 8 8\n\t0 ops struct tiny_ops\nstruct tiny_ops 8 8\n\t0 flush *func(q *struct tiny_queue, n int) int\nstruct tiny_queue 8 8\n\t0 ctx *struct tiny_ctx\n"},
}

func TestGolden(t *testing.T) {
	for _, c := range goldens {
		t.Run(c.name, func(t *testing.T) {
			files, err := tiny(t, c.facts)
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			for _, name := range strings.Fields(c.files) {
				fmt.Fprintf(&got, "-- %s --\n%s", name, files["tiny/"+name])
			}
			rdmatest.Golden(t, filepath.Join("testdata", c.name+".golden"), got.String())
		})
	}
}

// All of that compiles, proofs and C included.
func TestGoldenCompiles(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name string, b []byte) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range goldens {
		files, err := tiny(t, c.facts)
		if err != nil {
			t.Fatal(err)
		}
		for name, b := range files {
			write(filepath.Join(c.name, name), b)
		}
	}
	write("go.mod", []byte("module example.com/tiny\n\ngo 1.26.0\n\nrequire github.com/goverbs/goverbs v0.0.0\n\nreplace github.com/goverbs/goverbs => "+root+"\n"))
	for _, env := range []string{"CGO_ENABLED=1", "CGO_ENABLED=0"} {
		cmd := exec.Command("go", "vet", "./...")
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off", env)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", env, err, out)
		}
	}
}

// What cannot be bound is an error that says so, never silence.
func TestRefused(t *testing.T) {
	for _, c := range []struct{ name, facts, want string }{
		{"alignment", "struct tiny_wide 64 64\n\t0 opcode unsigned char\n", "aligned to 64 bytes"},
		{"two records of one name", "struct tiny_a_b 4 4\n\t0 x int\nstruct tiny_a__b 4 4\n\t0 x int\n", "would be called AB"},
		{"two fields of one name", "struct tiny_a 8 4\n\t0 x_y int\n\t4 x__y int\n", "would be called XY"},
		{"variadic function", "extern tiny_print(format *const char, ...) int\n", "variadic"},
		{"inline function that calls no slot", "inline tiny_twice(n int) int\n", "say how in gen/tables"},
		{"anonymous enum without a name", "enum $TINY_MAX 4 unsigned\n\tTINY_MAX 64\n", "has no name"},
		{"macro without a value", "macro TINY_INLINE other\nstruct tiny_x opaque\n", "list it in gen/tables"},
	} {
		if _, err := tiny(t, c.facts); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// A field of flags has the type of the flags, a name ours.
func TestNames(t *testing.T) {
	for c, want := range map[string]string{
		"max_send_wr": "MaxSendWR", "wr_id": "WRID", "sg_list": "SGList", "num_sge": "NumSGE", "imm_data": "ImmData",
		"qp_num": "QPNum", "lkey": "LKey", "sgid_index": "SGIDIndex", "is_global": "IsGlobal", "dest_qp_num": "DestQPNum",
		"_ops": "Ops", "dlid_path_bits": "DLIDPathBits", "reg_dmabuf_mr": "RegDMABufMR", "rss_caps": "RSSCaps",
	} {
		if got := camel(c); got != want {
			t.Errorf("camel(%q) = %q, want %q", c, got, want)
		}
	}
	for c, want := range map[string]string{"qp": "qp", "remote_qpn": "remoteQPN", "type": "type_", "len": "len_", "wr": "wr"} {
		if got := lowerCamel(c); got != want {
			t.Errorf("lowerCamel(%q) = %q, want %q", c, got, want)
		}
	}
}

// The same facts give the same files, and tools know them as generated.
func TestFilesAreMarkedAndRepeatable(t *testing.T) {
	first, err := tiny(t, goldens[len(goldens)-1].facts)
	if err != nil {
		t.Fatal(err)
	}
	second, err := tiny(t, goldens[len(goldens)-1].facts)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(first)) {
		if !bytes.Equal(first[name], second[name]) {
			t.Errorf("%s differs from run to run", name)
		}
		if line, _, _ := strings.Cut(string(first[name]), "\n"); line != "// Code generated by gen from tiny.h (rdma-core 1.0). DO NOT EDIT." {
			t.Errorf("%s begins with %q", name, line)
		}
		if strings.HasSuffix(name, ".go") {
			f, err := parser.ParseFile(token.NewFileSet(), name, first[name], parser.ParseComments)
			if err != nil || !ast.IsGenerated(f) {
				t.Errorf("%s: not known as generated (%v)", name, err)
			}
		}
	}
}
