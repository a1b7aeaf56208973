package cli

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/pod/path"
)

// TestExplainStatuses checks that the help of explain and its page have the exit status of each layer.
func TestExplainStatuses(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/explain.md")
	if err != nil {
		t.Fatal(err)
	}
	for i, layer := range path.Layers() {
		if row := fmt.Sprintf("\n  %d  %s: ", path.ExitLayer+i, layer); !strings.Contains(newExplain().Long, row) {
			t.Errorf("the help of explain lacks %q", row)
		}
		row, _, _ := strings.Cut(string(page[max(0, strings.Index(string(page), fmt.Sprintf("\n| `%s` | ", layer))):])[1:], "\n")
		if !strings.HasSuffix(row, fmt.Sprintf(" | %d |", path.ExitLayer+i)) {
			t.Errorf("docs/explain.md has another status for %s: %q", layer, row)
		}
	}
}

// TestExplainExamples checks the statuses of what the help has as examples and of what it says of them.
func TestExplainExamples(t *testing.T) {
	t.Parallel()
	const manifests = " --manifests ../../examples/shop"
	for line, want := range map[string]int{
		"web.shop --from shop/web":           exitDone,
		"web.shop:80 --from shop/web":        exitDone,
		"shop/web --to data/postgres-0:5432": exitDone,
		"nosuch.shop --from shop/web":        path.ExitLayer,
		"web.shop:81 --from shop/web":        path.ExitLayer + 1,
		"http://no.example/":                 path.ExitLayer + 4,
		"web.shop":                           exitUsage,
	} {
		var out strings.Builder
		args := append([]string{"portolan", "explain"}, strings.Fields(line+manifests)...)
		if got := Run(t.Context(), args, &out, &out); got != want {
			t.Errorf("Run(%q) = %d, want %d: %s", args, got, want, out.String())
		}
	}
}
