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
	tool  tool
	args  []string
}

var compressions = []compression{
	{"\xfd7zXZ\x00", xzTool, []string{"-dc"}},
	{"\x28\xb5\x2f\xfd", zstdTool, []string{"-dcq"}},
	{"\x1f\x8b", gzipTool, []string{"-dc"}},
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
	if err := needTools("unpacking the kernel", c.tool); err != nil {
		return nil, err
	}
	var out, stderr bytes.Buffer
	cmd := exec.Command(c.tool.name, c.args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(data), &out, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", c.tool.name, err, strings.TrimSpace(stderr.String()))
	}
	return out.Bytes(), nil
}
