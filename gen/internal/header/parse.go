package header

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"modernc.org/cc/v4"

	"github.com/goverbs/goverbs/gen/internal/facts"
)

// Set is the headers to read.
type Set struct {
	Include []string // as in #include, in order: "infiniband/verbs.h"
	Also    []string // those that Include needs and whose facts belong to it

	// Tree is the include tree that has them; empty means the system's. All of
	// the set, and what else of the same folders they include, has to come
	// from one tree: parts of two rdma-core versions would be mixed otherwise.
	Tree string
}

// RDMACore is what goverbs binds, and what the declarations there are made of.
// Tree is left open.
var RDMACore = Set{
	Include: []string{
		"infiniband/verbs.h",
		"infiniband/mlx5dv.h",
		"infiniband/efadv.h",
		"rdma/rdma_cma.h",
	},
	Also: []string{
		"infiniband/ib_user_ioctl_verbs.h",
		"infiniband/mlx5_api.h",
		"infiniband/mlx5_user_ioctl_verbs.h",
		"infiniband/sa.h",
		"infiniband/tm_types.h",
		"infiniband/verbs_api.h",
	},
}

// ErrNotInstalled is wrapped by what Read returns on a machine without the headers.
var ErrNotInstalled = errors.New("not installed (Debian's rdma-core headers: libibverbs-dev, librdmacm-dev)")

// Read parses a set of headers and returns their facts. It asks the compiler
// that CC names, or else cc or gcc, for predefined macros and search path; this
// has to be gcc. CFLAGS have no influence.
func Read(set Set) (*facts.Model, error) {
	ast, err := parse(set)
	if err != nil {
		return nil, err
	}
	if err := oneTree(ast, set); err != nil {
		return nil, err
	}
	return extract(ast, set)
}

func parse(set Set) (*cc.AST, error) {
	var options []string
	if set.Tree != "" {
		options = append(options, "-I"+set.Tree)
	}
	cfg, err := cc.NewConfig("linux", runtime.GOARCH, options...)
	if err != nil {
		return nil, fmt.Errorf("asking gcc for its macros and search path: %w", err)
	}
	if strings.Contains(cfg.Predefined, "__clang__") {
		return nil, fmt.Errorf("%s is clang: headers are read as gcc sees them; unset CC or set CC=gcc", cfg.CC)
	}
	if err := find(cfg, set); err != nil {
		return nil, err
	}
	cfg.ABILayout = true     // packed records and bit-fields as gcc lays them out
	cfg.UnsignedEnums = true // an enum without negative values is unsigned, as for gcc
	cfg.EvalAllMacros = true
	var unit strings.Builder
	for _, h := range set.Include {
		fmt.Fprintf(&unit, "#include <%s>\n", h)
	}
	ast, err := cc.Translate(cfg, []cc.Source{
		{Name: "<predefined>", Value: cfg.Predefined},
		{Name: "<builtin>", Value: cc.Builtin},
		{Name: "<unit>", Value: unit.String()},
	})
	if err != nil {
		return nil, fmt.Errorf("parsing %s: %w", strings.Join(set.Include, ", "), err)
	}
	return ast, nil
}

// find reports headers that the tree or the system lacks.
func find(cfg *cc.Config, set Set) error {
	folders := cfg.SysIncludePaths
	if set.Tree != "" {
		folders = []string{set.Tree}
	}
	var missing []string
	for _, h := range slices.Concat(set.Include, set.Also) {
		if !slices.ContainsFunc(folders, func(dir string) bool {
			_, err := os.Stat(filepath.Join(dir, h))
			return err == nil
		}) {
			missing = append(missing, h)
		}
	}
	switch {
	case missing == nil:
		return nil
	case set.Tree == "":
		return fmt.Errorf("%s: %w", strings.Join(missing, ", "), ErrNotInstalled)
	}
	return fmt.Errorf("%s lacks %s: %w", set.Tree, strings.Join(missing, ", "), fs.ErrNotExist)
}

// oneTree reports headers that come from elsewhere than the others of the set.
func oneTree(ast *cc.AST, set Set) error {
	folders := map[string]bool{} // "infiniband", "rdma"
	for _, h := range set.Include {
		folders[filepath.Dir(h)] = true
	}
	var files []string
	add := func(file string) {
		if folders[filepath.Base(filepath.Dir(file))] {
			files = append(files, file)
		}
	}
	for l := ast.TranslationUnit; l != nil; l = l.TranslationUnit {
		add(l.ExternalDeclaration.Position().Filename)
	}
	for _, m := range ast.Macros {
		add(m.Position().Filename)
	}
	slices.Sort(files)
	tree := set.Tree
	var errs []error
	for _, f := range slices.Compact(files) {
		root := filepath.Dir(filepath.Dir(f))
		if tree == "" {
			tree = root
		}
		if root != filepath.Clean(tree) {
			errs = append(errs, fmt.Errorf("%s is not of the tree %s like the others: two versions would be mixed", f, tree))
		}
	}
	return errors.Join(errs...)
}
