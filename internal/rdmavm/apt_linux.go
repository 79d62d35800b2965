package rdmavm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

const fetchTimeout = 10 * time.Minute

// FetchKernel gets the newest kernel of the package into the cache, as Run does
// when there is none yet.
func FetchKernel(o Options) error {
	if err := o.validate(); err != nil {
		return err
	}
	c, err := openCache(o.logf)
	if err != nil {
		return err
	}
	name := o.kernelPackage()
	return c.locked(func() error {
		if err := c.fetchKernel(name); err != nil {
			return err
		}
		if k, ok := c.cachedKernel(name); ok {
			notef("kernel %s is in %s", k.name(), k.dir)
		}
		c.prune(time.Now())
		return nil
	})
}

// fetchKernel downloads a kernel package and unpacks what a guest needs of it
// into the cache; nothing is installed. The caller holds the lock.
func (c *cache) fetchKernel(packageName string) error {
	for _, tool := range []string{"apt-get", "apt-cache", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s, which gets the package %s, is not on this host", tool, packageName)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
	defer cancel()
	// Whatever is there was left behind: the lock is ours.
	dir := c.path("fetch")
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	// The machine's package lists first. Where they are missing or out of date,
	// lists of our own, which need no root.
	a := &apt{dir: dir}
	err := c.fetchWith(ctx, a, packageName)
	if errors.Is(err, errApt) && ctx.Err() == nil {
		notef("refreshing the list of packages, since: %v", err)
		if err = a.update(ctx); err == nil {
			err = c.fetchWith(ctx, a, packageName)
		}
	}
	return err
}

func (c *cache) fetchWith(ctx context.Context, a *apt, packageName string) error {
	debs, err := a.resolve(ctx, packageName)
	if err != nil {
		return err
	}
	entry := strings.TrimSuffix(debs[0].file, ".deb")
	if _, err := os.Stat(kernel{c.path("kernels", entry)}.image()); err == nil {
		return c.selectKernel(entry, packageName) // the newest is here already
	}
	notef("fetching %s into %s", entry, c.dir)
	root := filepath.Join(a.dir, "root")
	for _, d := range debs {
		file, err := a.download(ctx, d)
		if err != nil {
			return err
		}
		out, err := exec.CommandContext(ctx, "dpkg-deb", "-x", file, root).CombinedOutput()
		if err != nil {
			return fmt.Errorf("dpkg-deb -x %s: %w: %s", d.file, err, lastLine(out))
		}
	}
	return c.importKernel(root, entry, packageName)
}

// apt runs apt's tools for an ordinary user.
type apt struct {
	dir     string   // where downloads go
	options []string // for lists of our own
}

// errApt marks failures that fresh package lists may cure.
var errApt = errors.New("apt failed")

func (a *apt) run(ctx context.Context, tool string, args ...string) ([]byte, error) {
	options := append([]string{
		"-q", "-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=2", "-o", "Acquire::http::Timeout=30",
	}, a.options...)
	cmd := exec.CommandContext(ctx, tool, append(options, args...)...)
	cmd.Dir = a.dir
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var stderr tail
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s %s: %w", tool, args[0], ctx.Err())
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s %s: %w: %s", errApt, tool, strings.Join(args, " "), err, lastLine(stderr.bytes()))
	}
	return out, nil
}

// update gets package lists into a folder of ours.
func (a *apt) update(ctx context.Context) error {
	lists, store := filepath.Join(a.dir, "lists"), filepath.Join(a.dir, "store")
	for _, dir := range []string{filepath.Join(lists, "partial"), filepath.Join(store, "archives", "partial")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	a.options = []string{"-o", "Dir::State::Lists=" + lists, "-o", "Dir::Cache=" + store, "-o", "Acquire::Languages=none"}
	_, err := a.run(ctx, "apt-get", "update")
	return err
}

// A deb is a package to download.
type deb struct{ name, file string }

// kernelPart matches the packages that a kernel is spread over.
var kernelPart = regexp.MustCompile(`^linux-(image|binary|modules|modules-extra)-`)

// resolve returns the packages that the kernel is spread over, what a package
// depends on before it: a meta-package comes last.
func (a *apt) resolve(ctx context.Context, name string) ([]deb, error) {
	var names []string
	seen := map[string]bool{}
	var visit func(string) error
	visit = func(name string) error {
		if seen[name] {
			return nil
		}
		seen[name] = true
		out, err := a.run(ctx, "apt-cache", "depends", name)
		if err != nil {
			return err
		}
		for _, d := range parseDepends(string(out)) {
			if kernelPart.MatchString(d) {
				if err := visit(d); err != nil {
					return err
				}
			}
		}
		names = append(names, name)
		return nil
	}
	if err := visit(name); err != nil {
		return nil, err
	}
	out, err := a.run(ctx, "apt-get", append([]string{"download", "--print-uris"}, names...)...)
	if err != nil {
		return nil, err
	}
	debs := parseURIs(string(out))
	if len(debs) == 0 {
		return nil, fmt.Errorf("%w: nothing to download for %s", errApt, name)
	}
	slices.SortFunc(debs, func(a, b deb) int {
		return slices.Index(names, a.name) - slices.Index(names, b.name)
	})
	return debs, nil
}

// parseDepends reads the output of apt-cache depends. An alternative ("|Depends")
// and a virtual package ("<name>") is none that we must have.
func parseDepends(out string) []string {
	var names []string
	for line := range strings.Lines(out) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "Depends: ")
		if ok && !strings.HasPrefix(name, "<") {
			names = append(names, name)
		}
	}
	return names
}

// parseURIs reads the output of apt-get download --print-uris: a line has the
// quoted URI, the name of the file (name_version_arch.deb), its size and hash.
func parseURIs(out string) []deb {
	var debs []deb
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) < 2 || !strings.HasPrefix(fields[0], "'") || !strings.HasSuffix(fields[1], ".deb") {
			continue
		}
		name, _, _ := strings.Cut(fields[1], "_")
		debs = append(debs, deb{name, filepath.Base(fields[1])})
	}
	return debs
}

// download gets a package, whose signed hash apt checks.
func (a *apt) download(ctx context.Context, d deb) (string, error) {
	if _, err := a.run(ctx, "apt-get", "download", d.name); err != nil {
		return "", err
	}
	return filepath.Join(a.dir, d.file), nil
}

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}
