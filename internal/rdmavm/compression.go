package rdmavm

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
)

// A compression is one of the formats that kernels and modules come in. They are
// unpacked by the distribution's tools: the standard library knows only gzip.
type compression struct {
	magic string
	tool  string
	args  []string
	deb   string // the Debian package of the tool
}

var compressions = []compression{
	{"\xfd7zXZ\x00", "xz", []string{"-dc"}, "xz-utils"},
	{"\x28\xb5\x2f\xfd", "zstd", []string{"-dcq"}, "zstd"},
	{"\x1f\x8b", "gzip", []string{"-dc"}, "gzip"},
}

// compressionOf tells the format of data, nil for none that is known.
func compressionOf(data []byte) *compression {
	for i := range compressions {
		if bytes.HasPrefix(data, []byte(compressions[i].magic)) {
			return &compressions[i]
		}
	}
	return nil
}

func (c *compression) unpack(data []byte) ([]byte, error) {
	tool, err := exec.LookPath(c.tool)
	if err != nil {
		return nil, missing("to unpack the kernel", c.tool, c.deb)
	}
	var out, stderr bytes.Buffer
	cmd := exec.Command(tool, c.args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(data), &out, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", c.tool, err, strings.TrimSpace(stderr.String()))
	}
	return out.Bytes(), nil
}
