package rdmavm

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCpioIsNewc(t *testing.T) {
	var a cpioArchive
	a.dir("dev")
	a.charDevice("dev/console", 0o600, 5, 1)
	a.file("init", 0o755, []byte("hello"))
	a.file("empty", 0o644, nil)
	got := readCpio(t, a.finish())
	want := []string{
		"dev 40755 0:0 ",
		"dev/console 20600 5:1 ",
		"init 100755 0:0 hello",
		"empty 100644 0:0 ",
		"TRAILER!!! 0 0:0 ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("archive (-want +got):\n%s", diff)
	}
}

// readCpio reads an archive back, by the format's description: 13 numbers of
// eight hexadecimal digits after the magic, name and data padded to 4 bytes.
func readCpio(t *testing.T, b []byte) (entries []string) {
	t.Helper()
	const header = 6 + 13*8
	inodes := map[uint64]bool{}
	for at := 0; at < len(b); {
		if !bytes.HasPrefix(b[at:], []byte("070701")) {
			t.Fatalf("no magic at %d: %q", at, b[at:min(at+6, len(b))])
		}
		var field [13]uint64
		for i := range field {
			n, err := strconv.ParseUint(string(b[at+6+8*i:at+14+8*i]), 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			field[i] = n
		}
		inode, mode, links, size, major, minor, nameSize := field[0], field[1], field[4], int(field[6]), field[9], field[10], int(field[11])
		if inodes[inode] || links != 1 {
			t.Errorf("inode %d used before: %v; %d links", inode, inodes[inode], links)
		}
		inodes[inode] = true
		at += header
		name, ok := strings.CutSuffix(string(b[at:at+nameSize]), "\x00")
		if !ok {
			t.Errorf("name %q does not end in NUL", name)
		}
		at = (at + nameSize + 3) &^ 3
		entries = append(entries, fmt.Sprintf("%s %o %d:%d %s", name, mode, major, minor, b[at:at+size]))
		at = (at + size + 3) &^ 3
	}
	return entries
}
