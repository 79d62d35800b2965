package rdmavm

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTailKeepsTheEnd(t *testing.T) {
	var tail tail
	for i := range 100 {
		if n, err := tail.Write(bytes.Repeat([]byte{byte(i)}, 4096)); n != 4096 || err != nil {
			t.Fatal(n, err)
		}
	}
	got := tail.bytes()
	if len(got) < tailSize || len(got) > 2*tailSize || got[len(got)-1] != 99 {
		t.Errorf("kept %d bytes that end in %d", len(got), got[len(got)-1])
	}
}

func TestTailLines(t *testing.T) {
	var tail tail
	if got := tail.lines(3); len(got) != 0 {
		t.Errorf("lines of nothing: %q", got)
	}
	for _, s := range []string{"one\r\n", "\r\n", "two\nth", "ree\n", "four"} {
		if _, err := tail.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"two", "three", "four"}, tail.lines(3)); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}
