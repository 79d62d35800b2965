package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/gen/internal/facts"
	"github.com/goverbs/goverbs/gen/internal/header"
	"github.com/goverbs/goverbs/internal/rdmatest"
)

func TestMain(m *testing.M) { rdmatest.Main(m) }

const systemTree = "/usr/include"

// installed returns the version of the machine's headers.
func installed(t *testing.T) string {
	t.Helper()
	version, err := header.InstalledVersion()
	if err == nil {
		_, err = os.Stat(filepath.Join(systemTree, "infiniband/verbs.h"))
	}
	if err != nil {
		rdmatest.Skip(t, "no headers of rdma-core (Debian: libibverbs-dev, librdmacm-dev)")
	}
	return version
}

func TestCheckOfTheInstalledHeaders(t *testing.T) {
	version := installed(t)
	report, err := check(headers{}, true)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(report, "the headers of rdma-core "+version) {
		t.Error(report)
	}
}

// The snapshot of the installed headers is, byte for byte, the one that is pinned.
func TestSnapshotOfTheInstalledHeaders(t *testing.T) {
	version := installed(t)
	v, err := facts.ParseVersion(version)
	if err != nil {
		t.Fatal(err)
	}
	pinned, err := os.ReadFile(filepath.Join("snapshots", "rdma-core-"+strconv.Itoa(v.Major)+".txt"))
	if errors.Is(err, os.ErrNotExist) {
		rdmatest.Skip(t, "no snapshot of the installed rdma-core is pinned")
	}
	if err != nil {
		t.Fatal(err)
	}
	m, err := snapshot(headers{})
	if err != nil {
		t.Fatal(err)
	}
	if m.Target != "linux/amd64" {
		rdmatest.Skip(t, "the pinned snapshots are of linux/amd64")
	}
	var got bytes.Buffer
	if err := m.Write(&got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(string(pinned), "\n"), strings.Split(got.String(), "\n")); d != "" {
		t.Errorf("-pinned +installed:\n%s", d)
	}
}

func TestCheckNamesWhatADoctoredHeaderChanges(t *testing.T) {
	version := installed(t)
	for name, c := range map[string]struct {
		file, old, new string
		all            bool
		want           []string
	}{
		"fields swapped": {
			file: "infiniband/verbs.h",
			old:  "\tuint32_t\t\tlength;\n\tuint32_t\t\tlkey;\n",
			new:  "\tuint32_t\t\tlkey;\n\tuint32_t\t\tlength;\n",
			want: []string{
				"not true: offset of length in struct ibv_sge is 8",
				"~ struct ibv_sge: 12 lkey uint32_t -> 8 lkey uint32_t",
			},
		},
		"value changed": {
			file: "rdma/rdma_cma.h",
			old:  "RDMA_CM_EVENT_ADDR_RESOLVED,", new: "RDMA_CM_EVENT_ADDR_RESOLVED = 3,",
			want: []string{
				"not true: value of RDMA_CM_EVENT_ADDR_RESOLVED is 0",
				"~ enum rdma_cm_event_type: RDMA_CM_EVENT_ADDR_RESOLVED 0 -> RDMA_CM_EVENT_ADDR_RESOLVED 3",
			},
		},
		"value gone": {
			file: "infiniband/verbs.h",
			old:  "IBV_WC_RETRY_EXC_ERR,", new: "IBV_WC_OTHER_ERR,",
			want: []string{"- enum ibv_wc_status: IBV_WC_RETRY_EXC_ERR 12", "+ enum ibv_wc_status: IBV_WC_OTHER_ERR 12"},
		},
		"parameter more": {
			file: "infiniband/efadv.h", all: true,
			old: "int efadv_query_device(", new: "int efadv_query_device(int flags,\n",
			want: []string{"~ extern efadv_query_device("},
		},
	} {
		t.Run(name, func(t *testing.T) {
			doctored := copyHeaders(t, systemTree)
			file := filepath.Join(doctored, c.file)
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Count(string(text), c.old) != 1 {
				t.Fatalf("%s: %d times %q, want once", file, strings.Count(string(text), c.old), c.old)
			}
			if _, err := check(headers{tree: doctored, version: version}, true); err != nil {
				t.Fatalf("the copy alone: %v", err)
			}
			if err := os.WriteFile(file, []byte(strings.Replace(string(text), c.old, c.new, 1)), 0o644); err != nil {
				t.Fatal(err)
			}
			_, err = check(headers{tree: doctored, version: version}, c.all)
			if err == nil {
				t.Fatal("not noticed")
			}
			for _, want := range append(c.want, "go generate", "gen emit -max") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is missing in:\n%v", want, err)
				}
			}
		})
	}
}

// copyHeaders copies the folders infiniband and rdma of an include tree.
func copyHeaders(t *testing.T, tree string) string {
	t.Helper()
	to := t.TempDir()
	for _, folder := range []string{"infiniband", "rdma"} {
		if err := os.CopyFS(filepath.Join(to, folder), os.DirFS(filepath.Join(tree, folder))); err != nil {
			t.Fatal(err)
		}
	}
	return to
}

func TestCheckErrors(t *testing.T) {
	empty := t.TempDir()
	for name, c := range map[string]struct {
		from headers
		want string
	}{
		"tree without version": {headers{tree: empty}, "-I needs -version"},
		"tree and source":      {headers{tree: empty, source: empty}, "-I and -src exclude each other"},
		"empty tree":           {headers{tree: empty, version: "44"}, " lacks infiniband/verbs.h, infiniband/mlx5dv.h"},
		"empty source":         {headers{source: empty}, "not a source folder of rdma-core"},
		"too old":              {headers{tree: empty, version: "17"}, "no snapshot is as old as rdma-core 17"},
		"no version":           {headers{tree: empty, version: "new"}, `version "new"`},
	} {
		if _, err := check(c.from, false); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}
