package lint_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/pod/lint"
)

// TestKinds verifies that Kinds has each kind that a rule names or reads.
func TestKinds(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var source strings.Builder
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || file == "kinds.go" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		source.Write(text)
	}
	for _, k := range cluster.Kinds() {
		name := regexp.QuoteMeta(strings.TrimPrefix(k.String(), "X"))
		plural := regexp.QuoteMeta(strings.TrimPrefix(k.Plural(), "X"))
		reads := regexp.MustCompile(`cluster\.Kind` + name + `\b|cluster\.` + plural + `\.|View\.` + plural + `\(`)
		if reads.MatchString(source.String()) && !slices.Contains(lint.Kinds(), k) {
			t.Errorf("Kinds() lacks %s, which a rule reads", k)
		}
	}
}
