package docs

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/dns/respond"
	gatewayapp "portolan.dev/portolan/internal/gateway/app"
	policyapp "portolan.dev/portolan/internal/policy/app"
	"portolan.dev/portolan/internal/support/evidence"
)

// reasonsBegin begins the part of evidence.md that is made from the tables of reasons.
const reasonsBegin = "<!-- From here on: go test ./docs -update, from the tables of reasons in respond, " +
	"policy/app and gateway/app. -->\n"

// TestReasons: evidence.md has all reasons.
func TestReasons(t *testing.T) {
	page, err := os.ReadFile("evidence.md")
	if err != nil {
		t.Fatal(err)
	}
	intro, _, ok := strings.Cut(string(page), reasonsBegin)
	if !ok {
		t.Fatalf("evidence.md has no line %q", reasonsBegin)
	}
	var b strings.Builder
	for _, source := range []struct {
		title, kind string
		reasons     []evidence.Reason
	}{
		{"Queries", respond.EvidenceKind, respond.EvidenceReasons()},
		{"Drops", policyapp.EvidenceKind, policyapp.EvidenceReasons()},
		{"Requests", gatewayapp.EvidenceKind, gatewayapp.EvidenceReasons()},
	} {
		fmt.Fprintf(&b, "\n### %s\n\nThe kind is `%s`.\n\n| reason | usual | meaning |\n|---|---|---|\n", source.title, source.kind)
		for _, r := range source.reasons {
			usual := ""
			if r.Usual {
				usual = "yes"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", r.Word, usual, r.Meaning)
		}
	}
	wantFile(t, "evidence.md", intro+reasonsBegin+b.String())
}
