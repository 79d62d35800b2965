package rdmavm

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// A tool is a program of the host's, and the Debian package that has it.
type tool struct{ name, deb string }

var (
	qemuTool = tool{"qemu-system-x86_64", "qemu-system-x86"}
	xzTool   = tool{"xz", "xz-utils"}
	zstdTool = tool{"zstd", "zstd"}
	gzipTool = tool{"gzip", "gzip"}
)

// needTools returns an error that names all the tools that are not installed, and
// the command that installs them.
func needTools(purpose string, tools ...tool) error {
	var names, debs []string
	for _, t := range tools {
		if _, err := exec.LookPath(t.name); err != nil {
			names, debs = append(names, t.name), append(debs, t.deb)
		}
	}
	if len(names) == 0 {
		return nil
	}
	what := fmt.Sprintf("%s needs %s", purpose, strings.Join(names, " and "))
	if _, err := exec.LookPath("apt-get"); err != nil {
		return errors.New(what + "; install it as your distribution does")
	}
	install := "apt-get install -y --no-install-recommends " + strings.Join(debs, " ")
	if os.Geteuid() != 0 {
		install = "sudo " + install
	}
	return fmt.Errorf("%s; install with: %s", what, install)
}
