package interop

import (
	"encoding/json"
	"errors"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// finding is what testssl.sh finds, with a severity from OK to CRITICAL.
type finding struct{ ID, Severity, Finding string }

// TestTestssl has testssl.sh look for weaknesses of TLS: protocols, suites, forward secrecy, defaults and known attacks.
// What it finds about the certificate is about that of the test.
func TestTestssl(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("testssl")
	if err != nil {
		program, err = exec.LookPath("testssl.sh")
	}
	if err != nil {
		t.Skip("testssl is missing; install testssl.sh (Debian: apt-get install testssl.sh)")
	}
	endpoint := servePages(t, (*httptest.Server).Start)
	g := startGateway(t, endpoint, endpoint)
	file := filepath.Join(t.TempDir(), "findings.json")
	cmd := exec.CommandContext(t.Context(), program, "--quiet", "--color", "0", "--warnings", "off", "--nodns", "none",
		"--jsonfile", file, "--protocols", "--std", "--fs", "--server-preference", "--server-defaults", "--vulnerable",
		"--ip", g.host, callsHost+":"+tlsPort)
	out, err := cmd.CombinedOutput()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) { // the status is the number of findings
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var all []finding
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]string)
	for _, f := range all {
		seen[f.ID] = f.Finding
		switch {
		case strings.HasPrefix(f.ID, "cert") || slices.Contains([]string{"OK", "INFO", "DEBUG"}, f.Severity):
		case f.Severity == "LOW" || f.Severity == "WARN":
			t.Logf("%s: %s: %s", f.Severity, f.ID, f.Finding)
		default:
			t.Errorf("%s: %s: %s", f.Severity, f.ID, f.Finding)
		}
	}
	for id, want := range map[string]string{"TLS1": "not offered", "TLS1_2": "offered", "TLS1_3": "offered", "LUCKY13": "not vulnerable", "ROBOT": "not vulnerable"} {
		if !strings.HasPrefix(seen[id], want) {
			t.Errorf("%s: %q, want %q: is this what was looked at?\n%s", id, seen[id], want, out)
		}
	}
	t.Logf("%d findings", len(all))
}
