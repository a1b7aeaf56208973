package docs

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/kube/admission"
	"portolan.dev/portolan/internal/pod/lint"
)

// TestWebhookRules: docs/webhook.md lists the rules that objects are held to.
func TestWebhookRules(t *testing.T) {
	page, err := os.ReadFile("webhook.md")
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	want.WriteString("| rule | finds |\n|---|---|\n")
	for _, r := range admission.Rules() {
		note := ""
		if r.Severity == lint.Note {
			note = " (a note)"
		}
		fmt.Fprintf(&want, "| `%s` | %s%s |\n", r.ID, r.Title, note)
	}
	if *update {
		before, rest, found := strings.Cut(string(page), "| rule | finds |\n")
		_, after, ended := strings.Cut(rest, "\n\n")
		if !found || !ended {
			t.Fatal("webhook.md has no table of rules")
		}
		if err := os.WriteFile("webhook.md", []byte(before+want.String()+"\n"+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !strings.Contains(string(page), want.String()+"\n") {
		t.Errorf("webhook.md has another table of rules than (go test ./docs -update):\n%s", &want)
	}
}
