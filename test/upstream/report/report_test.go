package report

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/test/upstream/suite"
)

// TestPages compares the pages with the recorded outcomes: both are written by the same command.
func TestPages(t *testing.T) {
	t.Parallel()
	for command, p := range map[string]struct {
		file    string
		columns []Column
	}{
		"make conformance-proxy": {"proxy-e2e.md", []Column{
			{"kube-proxy", read(t, "kube-proxy")}, {"Portolan", read(t, "portolan")},
		}},
		"make conformance-network":    {"network-e2e.md", []Column{{"Portolan", read(t, "portolan-network")}}},
		"make conformance-policy":     {"policy-e2e.md", []Column{{"Portolan", read(t, "portolan-policies")}}},
		"make conformance-policy-api": {"policy-e2e.md", []Column{{"Portolan", read(t, "network-policy-api")}}},
	} {
		page, err := os.ReadFile(filepath.Join("../../../docs", p.file))
		if err != nil {
			t.Fatal(err)
		}
		want, err := Insert(string(page), command, Table(p.columns...))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(page)); diff != "" {
			t.Errorf("%s has another table than the outcomes; go run ./cmd/conformance -table (-want +got):\n%s", p.file, diff)
		}
	}
}

// read reads the recorded outcomes of a kind of cluster, of which there are some.
func read(t *testing.T, kind string) Outcomes {
	t.Helper()
	o, err := Read(filepath.Join("../testdata", kind+".json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(o) == 0 {
		t.Errorf("no outcomes of %s", kind)
	}
	return o
}

func TestTable(t *testing.T) {
	t.Parallel()
	kubeProxy := Outcomes{
		"[sig-network] a": {State: suite.Passed, Attempts: 1},
		"[sig-network] b": {State: suite.Failed, Attempts: 2},
		"[sig-network] c": {State: suite.Skipped, Skipped: "no a|b\nand more"},
	}
	portolan := Outcomes{
		"[sig-network] a": {State: suite.Passed, Attempts: 2},
		"[sig-network] c": {State: suite.Skipped, Skipped: "no a|b"},
	}
	columns := []Column{{"kube-proxy", kubeProxy}, {"Portolan", portolan}}
	want := `| | passed | failed | skipped |
|---|---|---|---|
| kube-proxy | 1 | 1 | 1 |
| Portolan | 1 | 0 | 1 |

| spec | kube-proxy | Portolan |
|---|---|---|
| a | passed | passed, attempt 2 |
| b | failed | not run |

| skipped spec | reason |
|---|---|
| c | no a\|b |
`
	if diff := cmp.Diff(want, Table(columns...)); diff != "" {
		t.Errorf("Table (-want +got):\n%s", diff)
	}
	if got := Faults(columns...); len(got) != 1 || got[0] != "[sig-network] b" {
		t.Errorf("Faults = %q, want b alone", got)
	}
	if got := Faults(columns[0]); len(got) != 1 || got[0] != "[sig-network] b" {
		t.Errorf("Faults of kube-proxy = %q, want b alone", got)
	}
	if got := Faults(columns[1]); len(got) != 0 {
		t.Errorf("Faults of Portolan = %q, want none", got)
	}
	file := filepath.Join(t.TempDir(), "outcomes")
	if err := kubeProxy.Write(file); err != nil {
		t.Fatal(err)
	}
	if got, err := Read(file); err != nil || !cmp.Equal(got, kubeProxy) {
		t.Errorf("Read = %v, %v, want what was written", got, err)
	}
}

func TestInsert(t *testing.T) {
	t.Parallel()
	page := begin("x") + "X\n" + end + "a\n" + begin("y") + "old\n" + end + "b\n"
	want := begin("x") + "X\n" + end + "a\n" + begin("y") + "\nnew\n\n" + end + "b\n"
	if got, err := Insert(page, "y", "new\n"); err != nil || got != want {
		t.Errorf("Insert = %q, %v", got, err)
	}
	for _, page := range []string{begin("y") + "old\n", begin("x") + end, ""} {
		if _, err := Insert(page, "y", "new\n"); !errors.Is(err, ErrNoTable) {
			t.Errorf("Insert in %q: %v, want ErrNoTable", page, err)
		}
	}
}
