package object

import (
	"strings"
	"testing"
)

// TestParseSelector checks which labels selectors select.
func TestParseSelector(t *testing.T) {
	t.Parallel()
	labels := map[string]string{"team": "a", "tier": "web"}
	for text, want := range map[string]bool{
		"": true, "team=a": true, "team==b": false, "team=a,tier=web": true, "team=a,tier=db": false, "team!=b": true,
		"tier in (db, web)": true, "tier notin (web)": false, "none notin (web)": true, "team": true, "!team": false, "!none": true,
	} {
		s, err := ParseSelector(text)
		if err != nil || s.Selects(labels) != want {
			t.Errorf("ParseSelector(%q) = %+v, %v; want that it selects %v: %t", text, s, err, labels, want)
		}
	}
	for text, want := range map[string]string{
		"a in b": `"a in b" is not a label selector: `, "a>1": `"a>1" has the operator gt, which label selectors`,
	} {
		if _, err := ParseSelector(text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("ParseSelector(%q) = %v, want %q", text, err, want)
		}
	}
}
