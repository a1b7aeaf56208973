package report

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/test/upstream/suite"
)

// TestPage compares the page with the recorded outcomes: both are written by the same command.
func TestPage(t *testing.T) {
	t.Parallel()
	const file = "../../../docs/proxy-e2e.md"
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var outcomes []Outcomes
	for _, proxy := range []string{"kube-proxy", "portolan"} {
		o, err := Read(filepath.Join("../testdata", proxy+".json"))
		if err != nil {
			t.Fatal(err)
		}
		if len(o) == 0 {
			t.Errorf("no outcomes of %s", proxy)
		}
		outcomes = append(outcomes, o)
	}
	want, err := Insert(string(page), "make conformance-proxy", Table(outcomes[0], outcomes[1]))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(page)); diff != "" {
		t.Errorf("%s has another table than the outcomes; go run ./cmd/conformance -table (-want +got):\n%s", file, diff)
	}
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
	if diff := cmp.Diff(want, Table(kubeProxy, portolan)); diff != "" {
		t.Errorf("Table (-want +got):\n%s", diff)
	}
	if got := Differences(kubeProxy, portolan); len(got) != 1 || got[0] != "[sig-network] b" {
		t.Errorf("Differences = %q, want b alone", got)
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
