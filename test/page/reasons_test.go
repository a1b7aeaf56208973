package page

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestReasons verifies that the page has the reasons of docs/evidence.md with their meanings. With -update it writes
// them.
func TestReasons(t *testing.T) {
	t.Parallel()
	const file = files + "/reasons.js"
	docs, err := os.ReadFile("../../docs/evidence.md")
	if err != nil {
		t.Fatal(err)
	}
	want := reasonsOf(string(docs))
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != want {
		t.Errorf("%s is not what docs/evidence.md says (%v); run go test -run Reasons -update .", file, err)
	}
	if strings.Count(want, "\n") < 60 || !strings.Contains(want, `"no-service": "The Namespace has no such Service."`) {
		t.Errorf("docs/evidence.md has other tables than this test reads; it found\n%s", want)
	}
}

// reasonsOf returns the module with the reasons of the tables in docs/evidence.md.
func reasonsOf(docs string) string {
	kind := regexp.MustCompile("^The kind is `([a-z]+)`")
	row := regexp.MustCompile("^\\| `([a-z0-9-]+)` \\|[^|]*\\| (.*) \\|$")
	var b strings.Builder
	b.WriteString("// Reasons of events and what they mean, by kind. go test -run Reasons -update . in test/page writes this file from\n" +
		"// docs/evidence.md.\n\n/** @type {Record<string, Record<string, string>>} */\nexport const meanings = {")
	kinds := 0
	for line := range strings.SplitSeq(docs, "\n") {
		if m := kind.FindStringSubmatch(line); m != nil {
			if kinds++; kinds > 1 {
				b.WriteString("\n  },")
			}
			fmt.Fprintf(&b, "\n  %s: {", m[1])
		}
		if m := row.FindStringSubmatch(line); m != nil && kinds > 0 {
			fmt.Fprintf(&b, "\n    %q: %q,", m[1], strings.ReplaceAll(m[2], "`", ""))
		}
	}
	b.WriteString("\n  },\n};\n")
	return b.String()
}
