package yamlerr_test

import (
	"testing"

	"go.yaml.in/yaml/v3"

	"portolan.dev/portolan/internal/support/yamlerr"
)

func TestSplit(t *testing.T) {
	t.Parallel()
	for claim, c := range map[string]struct {
		text string
		line int
	}{
		"an error of the scanner":  {"a: 1\nb: 2\nc: \"x", 3},
		"an error of the parser":   {"a: 1\nb: [x\nc: 3\n", 2},
		"a bad indent":             {"a: 1\nb: 2\n  c: 3\n", 3},
		"a duplicate key":          {"a: 1\nb: 2\na: 3\n", 3},
		"an undefined anchor":      {"a: 1\nb: *x\n", 0},
		"a tab in the indentation": {"a:\n  b: 1\n\tc: 2\n", 3},
		"a tab in a later line":    {"a:\n  b: 1\n  c: 2\n  d: 2\n\te: 2\n", 5},
		"a key after a list":       {"a:\n- b\nc\nd: 1\n", 3},
	} {
		var value any
		err := yaml.Unmarshal([]byte(c.text), &value)
		if err == nil {
			t.Errorf("%s: Unmarshal(%q) = nil error", claim, c.text)
			continue
		}
		if line, clean := yamlerr.Split(err); line != c.line {
			t.Errorf("%s: Split(%v) = %d, %v, want line %d", claim, err, line, clean, c.line)
		}
	}
}
