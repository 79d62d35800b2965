package goverbs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/goverbs/goverbs"

// goFile is one parsed Go file of the module, whatever its build tags.
type goFile struct {
	path string // relative to the root, with slashes
	dir  string
	test bool
	fset *token.FileSet
	ast  *ast.File
}

func goFiles(t *testing.T) []goFile {
	t.Helper()
	var files []goFile
	fset := token.NewFileSet()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if path != "." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		f, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		path = filepath.ToSlash(path)
		files = append(files, goFile{path, filepath.ToSlash(filepath.Dir(path)), strings.HasSuffix(path, "_test.go"), fset, f})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 20 {
		t.Fatalf("found only %d Go files: the walk is broken", len(files))
	}
	return files
}

// mayImport says which of the module's folders the code below a folder may
// use; the longest matching folder counts. Arrows run one way: examples and
// commands to the facade and the backends, those to the raw bindings, those to
// capi.
var mayImport = map[string][]string{
	".":            {"internal/rdmatest", "rdma", "backends"},
	"gen":          {"gen"},
	"capi":         {"capi"},
	"zz_generated": {"capi", "zz_generated"},
	"rdma":         {"rdma", "zz_generated", "capi", "internal"},
	"rdma/backend": {"zz_generated", "capi", "rdma/internal"},
	"rdma/raw":     {"rdma", "zz_generated"},
	"backends":     {"rdma", "zz_generated", "capi", "internal"},
	"cmd":          {"rdma", "backends", "internal", "sim"},
	"examples":     {"rdma", "backends", "sim", "internal/rdmatest"},
	"internal":     {"internal", "zz_generated", "capi"},
	"sim":          {"sim", "capi"}, // emulates the layer below the bindings

	"internal/rdmatest/backendtest": {"rdma"},
	"internal/rdmatest/testdevices": {"internal/rdmatest", "sim", "zz_generated"},
}

// testsOnly is what nothing but tests may import: it changes the process that
// it is in.
const testsOnly = "internal/rdmatest/testdevices"

// testsMayImport says what tests below a folder may use beyond that, and beyond
// internal/rdmatest and their own package.
var testsMayImport = map[string][]string{
	"rdma":         {"backends", "sim"},
	"backends":     {"sim"},
	"zz_generated": {"internal"},
	"capi":         {"internal"},
	"gen":          {"internal/rdmatest"},
	"internal":     {"rdma", "gen"},
	"sim":          {"zz_generated", "rdma", "backends"},
}

func below(path, dir string) bool {
	return dir == "." || path == dir || strings.HasPrefix(path, dir+"/")
}

// home returns the longest key of rules that dir is below.
func home(rules map[string][]string, dir string) string {
	best := "."
	for k := range rules {
		if k != "." && below(dir, k) && (best == "." || len(k) > len(best)) {
			best = k
		}
	}
	return best
}

func TestImportsFollowTheArchitecture(t *testing.T) {
	for _, f := range goFiles(t) {
		allowed := slices.Clone(mayImport[home(mayImport, f.dir)])
		if f.test {
			allowed = append(allowed, testsMayImport[home(testsMayImport, f.dir)]...)
			allowed = append(allowed, "internal/rdmatest", f.dir)
		}
		for _, im := range f.ast.Imports {
			path, _ := strconv.Unquote(im.Path.Value)
			rel, ok := strings.CutPrefix(path, module+"/")
			if !ok {
				continue
			}
			if rel == testsOnly && !f.test {
				t.Errorf("%s imports %s, which is for tests", f.path, rel)
			}
			if !slices.ContainsFunc(allowed, func(a string) bool { return below(rel, a) }) {
				t.Errorf("%s imports %s; code in %s may use only %v", f.path, rel, home(mayImport, f.dir), allowed)
			}
		}
	}
}

func TestCgoOnlyInTheRawLayer(t *testing.T) {
	allowed := []string{"zz_generated", "capi", "sim", "internal"}
	for _, f := range goFiles(t) {
		for _, im := range f.ast.Imports {
			if im.Path.Value == `"C"` && !slices.ContainsFunc(allowed, func(a string) bool { return below(f.dir, a) }) {
				t.Errorf(`%s imports "C"; cgo belongs in %v`, f.path, allowed)
			}
		}
	}
}

// Calls that the module does without, and where they are the point.
var banned = []struct {
	call, why string // "*" stands for any variable
	except    string // folder where it belongs
	tests     bool   // tests may
}{
	{"runtime.SetFinalizer", "use runtime.AddCleanup through internal/handle", "", false},
	{"runtime.AddCleanup", "only internal/handle guards objects", "internal/handle", true},
	{"*.Skip", skipsAreCounted, "internal/rdmatest", false},
	{"*.Skipf", skipsAreCounted, "internal/rdmatest", false},
	{"*.SkipNow", skipsAreCounted, "internal/rdmatest", false},
}

const skipsAreCounted = "skips are counted: use internal/rdmatest"

func TestBannedCalls(t *testing.T) {
	for _, f := range goFiles(t) {
		packages := map[string]bool{}
		for _, im := range f.ast.Imports {
			p, _ := strconv.Unquote(im.Path.Value)
			packages[path.Base(p)] = true
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, ok := sel.X.(*ast.Ident)
			if !ok {
				return true
			}
			call := x.Name + "." + sel.Sel.Name
			if !packages[x.Name] {
				call = "*." + sel.Sel.Name
			}
			for _, b := range banned {
				allowed := b.except != "" && below(f.dir, b.except) || b.tests && f.test
				if call == b.call && !allowed {
					t.Errorf("%s: %s.%s: %s", f.fset.Position(n.Pos()), x.Name, sel.Sel.Name, b.why)
				}
			}
			return true
		})
	}
}

func TestGeneratedCodeIsMarked(t *testing.T) {
	for _, f := range goFiles(t) {
		generated := ast.IsGenerated(f.ast)
		if want := below(f.dir, "zz_generated"); generated != want && !f.test {
			t.Errorf("%s: ast.IsGenerated is %v, want %v", f.path, generated, want)
		}
	}
}

// What devices cannot do is listed for tests to ask, and for readers of the page
// that shows the list: nothing is on it that no test asks for.
func TestEveryFeatureIsAskedFor(t *testing.T) {
	features, asked := map[string]bool{}, map[string]bool{}
	for _, f := range goFiles(t) {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "rdmatest" {
					asked[n.Sel.Name] = true
				}
			case *ast.ValueSpec:
				if typ, ok := n.Type.(*ast.Ident); ok && typ.Name == "Feature" && f.dir == "internal/rdmatest" {
					for _, name := range n.Names {
						features[name.Name] = true
					}
				}
			}
			return true
		})
	}
	if len(features) == 0 {
		t.Fatal("no features found: the walk is broken")
	}
	for name := range features {
		if !asked[name] {
			t.Errorf("no test asks for rdmatest.%s", name)
		}
	}
}
