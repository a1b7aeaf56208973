package cli

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"testing"

	podapp "portolan.dev/portolan/internal/pod/app"
	"portolan.dev/portolan/internal/pod/lint"
)

func TestGitHubEscapes(t *testing.T) {
	found := findings{shown: []podapp.Found{{Rule: "r", Severity: lint.Error, Message: "100% a\nb\r: c, d", File: "a:b,c%.yaml", Line: 7}}}
	var out bytes.Buffer
	if err := printGitHub(&out, found); err != nil {
		t.Fatal(err)
	}
	want := "::error file=a%3Ab%2Cc%25.yaml,line=7,title=r::100%25 a%0Ab%0D: c, d\n"
	if out.String() != want {
		t.Errorf("printGitHub prints %q, want %q", out.String(), want)
	}
}

// TestSARIF checks that a log conforms to SARIF 2.1.0: results refer to existing rules
// by index, and have a level, a message and lines from 1.
func TestSARIF(t *testing.T) {
	dir, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	found := findings{shown: []podapp.Found{
		{Rule: lint.PodNdotsLow, Severity: lint.Note, Object: "pod a/b", Message: "m", Fix: "f", File: "a b/c.yaml", Line: 3},
		{Rule: lint.PodNdotsLow, Severity: lint.Note, Object: "pod a/b", Message: "m", Fix: "f", File: filepath.Join(dir, "d.yaml"), Line: 3},
		{Rule: lint.ManifestRejected, Severity: lint.Error, Message: "m", File: "/elsewhere/d.yaml"},
		{Rule: lint.ManifestWarning, Severity: lint.Warning, Message: "m"},
	}}
	var out bytes.Buffer
	if err := printSARIF(&out, found); err != nil {
		t.Fatal(err)
	}
	var log sarifLog
	if err := json.Unmarshal(out.Bytes(), &log); err != nil {
		t.Fatal(err)
	}
	if log.Version != "2.1.0" || len(log.Runs) != 1 || len(log.Runs[0].Results) != len(found.shown) {
		t.Fatalf("printSARIF prints %s", out.String())
	}
	run := log.Runs[0]
	uris := []string{"a%20b/c.yaml", "d.yaml", "file:///elsewhere/d.yaml", ""}
	prints := make(map[string]bool)
	for i, r := range run.Results {
		if run.Tool.Driver.Rules[r.RuleIndex].ID != r.RuleID || r.Message.Text == "" || r.Level != found.shown[i].Severity.String() {
			t.Errorf("result %+v: want the index of its rule, a message and a level", r)
		}
		got, line := "", 1
		if len(r.Locations) > 0 && r.Locations[0].PhysicalLocation != nil {
			got, line = r.Locations[0].PhysicalLocation.ArtifactLocation.URI, r.Locations[0].PhysicalLocation.Region.StartLine
		}
		if got != uris[i] || line < 1 {
			t.Errorf("%+v is at %q line %d, want %q and a line from 1", found.shown[i], got, line, uris[i])
		}
		prints[r.PartialFingerprints["portolan/v1"]] = true
	}
	if len(prints) != len(run.Results) {
		t.Errorf("%d fingerprints of %d results", len(prints), len(run.Results))
	}
}

func TestLine(t *testing.T) {
	for want, f := range map[string]podapp.Found{
		"a.yaml:3: error: service a/b: spec: m; f [r]": {Rule: "r", Severity: lint.Error, Object: "service a/b", Field: "spec", Message: "m", Fix: "f", File: "a.yaml", Line: 3},
		"service a/b: note: m [r]":                     {Rule: "r", Severity: lint.Note, Object: "service a/b", Message: "m"},
		"a.yaml:1: error: m [r]":                       {Rule: "r", Severity: lint.Error, Message: "m", File: "a.yaml", Line: 1},
	} {
		if got := line(&f, f.Severity.String()); got != want {
			t.Errorf("line(%+v) = %q, want %q", f, got, want)
		}
	}
}
