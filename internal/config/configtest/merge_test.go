package configtest_test

import (
	"testing"

	"portolan.dev/portolan/internal/config/configtest"
)

func TestMerge(t *testing.T) {
	t.Parallel()
	for claim, test := range map[string]struct {
		parts []string
		want  string
	}{
		"sections are merged":             {[]string{"a: {b: 1}", "a: {c: {d: 2}}\ne: x"}, "a:\n  b: 1\n  c: {d: 2}\ne: x\n"},
		"a section given twice is merged": {[]string{"a: {b: 1}\na:\n  c: 2"}, "a:\n  b: 1\n  c: 2\n"},
		"the last value stays":            {[]string{"a: [1]\nb: 1", "a: [2, 3]"}, "a: [2, 3]\nb: 1\n"},
		"an empty part adds nothing":      {[]string{"", "# nothing", "a: 1"}, "a: 1\n"},
	} {
		if got := configtest.Merge(test.parts...); got != test.want {
			t.Errorf("%s: Merge(%q) = %q, want %q", claim, test.parts, got, test.want)
		}
	}
}
