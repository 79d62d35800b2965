package rdmavm

import (
	"strings"
	"testing"
)

func TestMissingToolsAreNamedWithTheirPackages(t *testing.T) {
	needTool(t, "apt-get")
	there, gone, goneToo := tool{"true", "coreutils"}, tool{"no-such-tool", "its-package"}, tool{"nor-this", "another"}
	if err := needTools("this", there); err != nil {
		t.Error(err)
	}
	err := needTools("this", gone, there, goneToo)
	if err == nil {
		t.Fatal("no error for what is missing")
	}
	for _, want := range []string{"this needs no-such-tool and nor-this;", "apt-get install -y --no-install-recommends its-package another"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
}
