package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"portolan.dev/portolan/internal/cli"
	"portolan.dev/portolan/internal/pod/connection"
	"portolan.dev/portolan/internal/pod/path"
)

// leastConnections is the number of broken connections that the table has at least.
const leastConnections = 25

// TestConnections checks that explain gives the true cause of a failed connection first. The
// table has the form of situations:
//
//	> TARGET from CLIENT [on NODE] [with CONFIG]
//	SENTENCE, or connected
//	cure: BEGINNING
func TestConnections(t *testing.T) {
	t.Parallel()
	const file = "../../testdata/connections/connections.txtar"
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]string)
	for _, f := range archive.Files {
		files[f.Name] = string(f.Data)
	}
	dir := t.TempDir()
	manifests := filepath.Join(dir, "cluster.yaml")
	for name, text := range files {
		write(t, filepath.Join(dir, name), text)
	}
	broken := 0
	for table := range strings.SplitSeq(files["connections"], "\n> ") {
		question, rest, _ := strings.Cut(table, "\n")
		why, cure, _ := strings.Cut(rest, "\n")
		words := strings.Fields(question)
		if len(words) < 3 || words[1] != "from" {
			continue
		}
		args := []string{"explain", words[0], "--from", words[2], "--manifests", manifests, "-o", "json"}
		for i := 3; i+1 < len(words); i += 2 {
			switch words[i] {
			case "on":
				args = append(args, "--node", words[i+1])
			case "with":
				args = append(args, "--config", filepath.Join(dir, words[i+1]))
			default:
				t.Fatalf("%q: %q is not on or with", question, words[i])
			}
		}
		cure, _, _ = strings.Cut(strings.TrimPrefix(cure, "cure: "), "\n")
		if strings.HasPrefix(cure, "#") {
			cure = ""
		}
		if why != connection.Connected {
			broken++
		}
		t.Run(question, func(t *testing.T) { t.Parallel(); explainConnection(t, args, why, cure) })
	}
	if broken < leastConnections {
		t.Errorf("%s has %d broken connections, want at least %d", file, broken, leastConnections)
	}
}

// explainConnection runs the command, and compares the first sentence and the beginning of its
// cure.
func explainConnection(t *testing.T, args []string, want, cure string) {
	t.Helper()
	var stdout, stderr strings.Builder
	status := cli.Run(t.Context(), append([]string{"portolan"}, args...), &stdout, &stderr)
	var got path.Explanation
	if err := json.Unmarshal([]byte(stdout.String()), &got); err != nil {
		t.Fatalf("%q: %v\n%s%s", args, err, stdout.String(), stderr.String())
	}
	if want == connection.Connected {
		if !strings.HasPrefix(got.Outcome, want) || status != 0 {
			t.Errorf("%q: %s, status %d, %+v; want %s", args, got.Outcome, status, got.Steps, want)
		}
		return
	}
	cause := got.Step(got.Cause)
	if cause == nil || len(cause.Diagnoses) == 0 || status == 0 {
		t.Fatalf("%q: %s, status %d, %+v; want %s", args, got.Outcome, status, got.Steps, want)
	}
	first := cause.Diagnoses[0]
	why := first.Why
	same := why == want
	if beginning, open := strings.CutSuffix(want, " ..."); open {
		same = strings.HasPrefix(why, beginning)
	}
	if !same || !strings.HasPrefix(first.Cure, cure) {
		t.Errorf("%q\nwhy  %s\nwant %s\ncure %s\nwant %s", args, why, want, first.Cure, cure)
	}
}
