package goverbs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rdma"
)

var goBlock = regexp.MustCompile("(?ms)^```go\n(.*?)^```")

// TestReadmeSnippets builds every Go snippet of the README and the docs, which is
// a whole program or a whole test file, and runs the tests.
func TestReadmeSnippets(t *testing.T) {
	docs, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, doc := range append(docs, "README.md") {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for i, m := range goBlock.FindAllSubmatch(text, -1) {
			found++
			name := "main.go"
			isTest := strings.Contains(string(m[1]), `"testing"`)
			if isTest {
				name = "snippet_test.go"
			}
			t.Run(fmt.Sprintf("%s-%d", doc, i+1), func(t *testing.T) {
				file := filepath.Join(t.TempDir(), name)
				if err := os.WriteFile(file, m[1], 0o644); err != nil {
					t.Fatal(err)
				}
				goTool(t, ".", nil, "vet", file) // a file outside the module is built as part of it
				if !isTest {
					return
				}
				_, err := rdma.Library()
				rdmatest.SkipUnsupported(t, err)
				if out := goTool(t, ".", nil, "test", "-v", "-count=1", file); !strings.Contains(out, "--- PASS") || strings.Contains(out, "--- SKIP") {
					t.Errorf("it does not run:\n%s", out)
				}
			})
		}
	}
	if found == 0 {
		t.Error("found no snippet at all")
	}
}
