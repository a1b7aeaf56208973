package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestRunbookCommands runs the commands of Portolan in the text of runbooks: none is wrong usage.
func TestRunbookCommands(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "portolan.yaml")
	if err := os.WriteFile(file, []byte("dns: {ttl: 5}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	words := strings.NewReplacer("NAMESPACE/POD", "shop/web", "NAME", "web.shop", "URL", "http://shop.example.com/", "FILE", file)
	pages, err := filepath.Glob("../../docs/runbooks/Portolan*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("runbooks: %q, %v", pages, err)
	}
	commands := make(map[string]string)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("`(portolan [^`]+)`").FindAllStringSubmatch(string(text), -1) {
			commands[m[1]] = filepath.Base(page)
		}
	}
	for command, page := range commands {
		if strings.HasPrefix(command, "portolan get ") && !strings.Contains(command, " -A") {
			t.Errorf("%s: %s lists one namespace, want -A: alerts are of all", page, command)
		}
		args := strings.Fields(words.Replace(command))
		if args[1] != "serve" {
			args = append(args, "--manifests", "../../examples/shop")
		}
		var out strings.Builder
		if status := Run(t.Context(), args, &out, &out); status == exitUsage {
			t.Errorf("%s: %s exits %d: %s", page, command, status, out.String())
		}
	}
}
