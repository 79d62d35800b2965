package rdmavm

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// A compression is one of the formats that kernels and modules come in. They are
// unpacked by the host's tools: the standard library knows only gzip.
type compression struct {
	magic  string
	suffix string // of a file's name
	tool   tool
	args   []string
}

var compressions = []compression{
	{"\xfd7zXZ\x00", ".xz", xzTool, []string{"-dc"}},
	{"\x28\xb5\x2f\xfd", ".zst", zstdTool, []string{"-dcq"}},
	{"\x1f\x8b", ".gz", gzipTool, []string{"-dc"}},
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

// unpack uses the format's own tool or, on a Debian that does not have it, dpkg-deb,
// which knows all formats.
func (c *compression) unpack(data []byte) ([]byte, error) {
	err := needTools("unpacking the kernel", c.tool)
	if err == nil {
		return output(exec.Command(c.tool.name, c.args...), data)
	}
	if _, dpkgErr := exec.LookPath("dpkg-deb"); dpkgErr != nil {
		return nil, err
	}
	return c.unpackAsDeb(data)
}

// unpackAsDeb lets dpkg-deb unpack data as if it were the files of a package.
func (c *compression) unpackAsDeb(data []byte) (unpacked []byte, err error) {
	f, err := os.CreateTemp("", "rdmavm-*.deb")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	var b bytes.Buffer
	b.WriteString("!<arch>\n")
	for _, member := range []struct {
		name string
		data []byte
	}{
		{"debian-binary", []byte("2.0\n")},
		{"control.tar", make([]byte, 1024)}, // an empty one
		{"data.tar" + c.suffix, data},
	} {
		fmt.Fprintf(&b, "%-16s%-12d%-6d%-6d%-8s%-10d`\n", member.name, 0, 0, 0, "100644", len(member.data))
		b.Write(member.data)
		if b.Len()%2 != 0 {
			b.WriteByte('\n')
		}
	}
	if _, err := f.Write(b.Bytes()); err != nil {
		return nil, err
	}
	return output(exec.Command("dpkg-deb", "--fsys-tarfile", f.Name()), nil)
}

// output runs a command and returns its stdout.
func output(cmd *exec.Cmd, stdin []byte) ([]byte, error) {
	var out, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &out, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", cmd.Args[0], err, strings.TrimSpace(stderr.String()))
	}
	return out.Bytes(), nil
}
