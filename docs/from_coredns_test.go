package docs

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/internal/migrate/corefile"
)

// TestUsualCorefile: the Corefile that docs/from-coredns.md shows becomes the
// configuration behind it, and all of it has a counterpart.
func TestUsualCorefile(t *testing.T) {
	page, err := os.ReadFile("from-coredns.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "\n## The usual Corefile, translated\n")
	_, text, _ = strings.Cut(text, "\n"+fence+"\n")
	given, text, _ := strings.Cut(text, fence)
	_, text, _ = strings.Cut(text, fence+"yaml\n")
	shown, _, ok := strings.Cut(text, fence)
	if !ok {
		t.Fatal("from-coredns.md has no Corefile and what it becomes")
	}
	made, err := corefile.Parse("Corefile", []byte(given), corefile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	written, err := made.Text()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(keysOf(t, string(written)), keysOf(t, shown)); diff != "" {
		t.Errorf("keys and values of from-coredns.md (-made +shown):\n%s", diff)
	}
	if !made.Complete() {
		t.Errorf("notes: %v, want nothing missing", made.Notes)
	}
}
