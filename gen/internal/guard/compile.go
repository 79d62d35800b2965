package guard

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"

	"github.com/goverbs/goverbs/gen/internal/facts"
)

var (
	failed    = regexp.MustCompile(`error: static assertion failed: "(.*)"`)
	otherFail = regexp.MustCompile(`error: (.*)`)
)

// Compile compiles what [Write] writes with gcc, or the compiler that CC names,
// against the headers of a tree ("" is the system's). It returns the facts
// that do not hold, in words.
func Compile(m *facts.Model, headers []string, tree string, match Match) (broken []string, err error) {
	var unit, log bytes.Buffer
	if err := Write(&unit, m, headers, match); err != nil {
		return nil, err
	}
	args := []string{"-fsyntax-only", "-std=gnu11", "-x", "c", "-"}
	if tree != "" {
		args = append([]string{"-I" + tree}, args...)
	}
	gcc := os.Getenv("CC")
	if gcc == "" {
		gcc = "gcc"
	}
	cmd := exec.Command(gcc, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.Stdin, cmd.Stderr = &unit, &log
	err = cmd.Run()
	if err == nil {
		return nil, nil
	}
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
		return nil, fmt.Errorf("checking layouts: %w", err)
	}
	for l := range strings.Lines(log.String()) {
		if f := failed.FindStringSubmatch(l); f != nil {
			broken = append(broken, "not true: "+f[1])
		} else if f := otherFail.FindStringSubmatch(l); f != nil {
			broken = append(broken, gcc+": "+f[1])
		}
	}
	if broken == nil {
		return nil, fmt.Errorf("%s: %w: %s", gcc, err, &log)
	}
	return broken, nil
}
