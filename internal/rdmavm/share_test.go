package rdmavm

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestFoldersOfTestFlags(t *testing.T) {
	const work = "/tmp/go-build1/b001"
	tests := []struct {
		name    string
		args    []string
		folders []string
		create  []string
	}{
		{"no test binary", []string{"-v", "server", "test.trace=x"}, nil, nil},
		{"no files", []string{"-test.paniconexit0", "-test.timeout=10m0s"}, nil, nil},
		{"test log", []string{"-test.testlogfile=" + work + "/testlog.txt"}, []string{work}, nil},
		{
			"coverage",
			[]string{"-test.gocoverdir=" + work + "/gocoverdir", "-test.coverprofile=" + work + "/_cover_.out"},
			[]string{work, work + "/gocoverdir"}, nil,
		},
		{
			"profiles go to the output folder",
			[]string{"-test.outputdir=/home/me", "-test.cpuprofile=cpu.out", "-test.trace=sub/trace.out"},
			[]string{"/home/me", "/home/me", "/home/me/sub"}, nil,
		},
		{"relative output folder", []string{"-test.outputdir=out", "-test.memprofile=mem"}, []string{"/src/pkg/out", "/src/pkg/out"}, nil},
		{"profiles without output folder", []string{"-test.memprofile=mem.out"}, []string{"/src/pkg"}, nil},
		{"absolute profile", []string{"-test.blockprofile=/a/b/../block"}, []string{"/a"}, nil},
		{"value in the next argument", []string{"-test.mutexprofile", "/x/y", "-test.v"}, []string{"/x"}, nil},
		{"two dashes", []string{"--test.mutexprofile=/x/y"}, []string{"/x"}, nil},
		{"not the program's own flags", []string{"-test.v", "--", "-test.trace=/x/y"}, nil, nil},
		{
			"fuzzing",
			[]string{"-test.fuzz=^FuzzX$", "-test.fuzzcachedir=/cache/fuzz/pkg"},
			nil, []string{"/src/pkg/testdata/fuzz", "/cache/fuzz/pkg"},
		},
		{"no fuzzing", []string{"-test.fuzz=", "-test.fuzzcachedir=/cache/fuzz/pkg"}, nil, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			folders, create := testFolders(test.args, "/src/pkg")
			if diff := cmp.Diff(test.folders, folders); diff != "" {
				t.Errorf("folders (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.create, create); diff != "" {
				t.Errorf("folders to make (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSharesAreRealAndNotNested(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"a/b/c", "a-b", "d"} {
		if err := os.MkdirAll(filepath.Join(top, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("d", filepath.Join(top, "link")); err != nil {
		t.Fatal(err)
	}
	var folders []string
	for _, dir := range []string{"a/b/c", "link", "a", "a-b", "d", "a/b"} {
		folders = append(folders, filepath.Join(top, dir))
	}
	got, err := makeShares(folders)
	if err != nil {
		t.Fatal(err)
	}
	want := []share{{"rw0", top + "/a"}, {"rw1", top + "/a-b"}, {"rw2", top + "/d"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("shares (-want +got):\n%s", diff)
	}
}

func TestSharesRefuse(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/", "/..", file, file + "-missing"} {
		if got, err := makeShares([]string{path}); err == nil {
			t.Errorf("%s is shared: %v", path, got)
		}
	}
}

func TestWithin(t *testing.T) {
	for _, test := range []struct {
		path, folder string
		want         bool
	}{
		{"/run", "/run", true},
		{"/run/x", "/run", true},
		{"/runner", "/run", false},
		{"/", "/run", false},
		{"/run", "/", true},
	} {
		if got := within(test.path, test.folder); got != test.want {
			t.Errorf("within(%q, %q) = %v", test.path, test.folder, got)
		}
	}
}

func TestTimeout(t *testing.T) {
	for _, test := range []struct {
		flag time.Duration
		args []string
		want time.Duration
	}{
		{0, nil, 20 * time.Minute},
		{time.Second, []string{"-test.timeout=5m"}, time.Second},
		{-1, []string{"-test.timeout=5m"}, 0},
		{0, []string{"-test.timeout=5m"}, 5*time.Minute + 30*time.Second},
		{0, []string{"-test.timeout=0s"}, 0},
		{0, []string{"-test.timeout=soon"}, 20 * time.Minute},
	} {
		o := Options{Timeout: test.flag}
		if got := o.timeout(test.args); got != test.want {
			t.Errorf("limit of -timeout %v, %q is %v, want %v", test.flag, test.args, got, test.want)
		}
	}
}
