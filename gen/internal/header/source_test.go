package header

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestOpenSourceLaysOutWhatIsInstalled(t *testing.T) {
	root := t.TempDir()
	layOut(t, root, map[string]string{
		"CMakeLists.txt":                  "project(rdma-core C)\nset(PACKAGE_VERSION \"44.0\")\n",
		"libibverbs/CMakeLists.txt":       "publish_headers(infiniband\n  verbs.h\n  )\n\npublish_internal_headers(infiniband\n  driver.h\n  )\n",
		"libibverbs/verbs.h":              "/* verbs */",
		"libibverbs/driver.h":             "/* driver */",
		"libibverbs/other.h":              "/* not published */",
		"providers/mlx5/CMakeLists.txt":   "publish_headers(infiniband\n  ../../kernel-headers/rdma/mlx5_user.h\n)\n",
		"kernel-headers/CMakeLists.txt":   "publish_internal_headers(rdma\n  rdma/mlx5_user.h\n  )\npublish_internal_headers(linux\n  linux/stddef.h\n  )\n",
		"kernel-headers/rdma/mlx5_user.h": "/* mlx5 */",
		"kernel-headers/linux/stddef.h":   "/* not wanted */",
		"librdmacm/CMakeLists.txt":        "publish_headers(rdma\n  rdma_cma.h\n  )\n",
		"librdmacm/rdma_cma.h":            "/* cma */",
		"pyverbs/verbs.h":                 "/* no CMakeLists.txt */",
	})
	s, err := OpenSource(root)
	if err != nil {
		t.Fatal(err)
	}
	if s.Version != "44.0" {
		t.Errorf("version %s", s.Version)
	}
	var got []string
	for _, pattern := range []string{"*/*", "*/*/*"} {
		files, err := filepath.Glob(filepath.Join(s.Tree, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			got = append(got, strings.TrimPrefix(f, s.Tree+"/"))
		}
	}
	want := []string{"infiniband/driver.h", "infiniband/mlx5_user.h", "infiniband/verbs.h", "rdma/mlx5_user.h", "rdma/rdma_cma.h"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(s.Tree); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", s.Tree, err)
	}
}

func TestOpenSourceErrors(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"empty folder":  {nil, "not a source folder of rdma-core"},
		"other project": {map[string]string{"CMakeLists.txt": "project(other)"}, "no PACKAGE_VERSION"},
		"lost header": {map[string]string{
			"CMakeLists.txt":   "set(PACKAGE_VERSION \"1.0\")",
			"a/CMakeLists.txt": "publish_headers(rdma lost.h)",
		}, "a/lost.h: no such file"},
	} {
		root, temp := t.TempDir(), t.TempDir()
		t.Setenv("TMPDIR", temp)
		layOut(t, root, c.files)
		_, err := OpenSource(root)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
		if left, _ := os.ReadDir(temp); len(left) != 0 {
			t.Errorf("%s: %v is left", name, left)
		}
	}
}
