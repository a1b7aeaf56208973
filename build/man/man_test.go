package man_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/build/man"
	"portolan.dev/portolan/internal/cli"
)

var book = man.Book{Version: "v0.1.0", Time: time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)}

// TestPagesOfCommands checks that each command has a page, with its flags and its examples, that groff or mandoc accepts
// without a warning.
func TestPagesOfCommands(t *testing.T) {
	t.Parallel()
	pages := book.Pages(cli.Command())
	for name, words := range map[string]string{
		"portolan.1":             "\\fBportolan\\-explain\\fR(1)",
		"portolan-explain.1":     ".TP\n\\fB\\-\\-from\\fR \\fINAMESPACE/POD\\fR\n",
		"portolan-policy-diff.1": "portolan policy diff policies",
		"portolan-get.1":         "\\fB\\-n\\fR, \\fB\\-\\-namespace\\fR \\fINAMESPACE\\fR\n",
	} {
		if !strings.Contains(pages[name], words) {
			t.Errorf("%s lacks %q:\n%s", name, words, pages[name])
		}
	}
	for name, text := range pages {
		for i, line := range strings.Split(text, "\n") {
			if strings.HasPrefix(line, "'") || strings.TrimSpace(line) != line && !strings.HasPrefix(line, " ") {
				t.Errorf("%s:%d: %q", name, i+1, line)
			}
		}
	}
	dir := t.TempDir()
	for name, text := range pages {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	accept(t, dir)
}

// TestExitStatuses checks that a page has exit statuses once: those of the command's own text, or else those of all.
func TestExitStatuses(t *testing.T) {
	t.Parallel()
	pages := book.Pages(cli.Command())
	for name, own := range map[string]bool{
		"portolan-explain.1": true, "portolan-test.1": true, "portolan-policy-diff.1": true, "portolan-report.1": true,
		"portolan-check.1": true, "portolan-env.1": false,
	} {
		text, ok := pages[name]
		if has := strings.Contains(text, "\n.SH EXIT STATUS\n"); !ok || has == own {
			t.Errorf("%s has a section on exit statuses: %t, want %t", name, has, !own)
		}
	}
}

// accept has the programs that read manual pages read those of a directory.
func accept(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for _, reader := range [][]string{{"groff", "-man", "-Tutf8", "-ww", "-z"}, {"mandoc", "-T", "lint", "-W", "warning"}} {
		if _, err := exec.LookPath(reader[0]); err != nil {
			continue
		}
		read++
		for _, file := range files {
			out, err := exec.CommandContext(t.Context(), reader[0], append(reader[1:], file)...).CombinedOutput()
			if err != nil || len(bytes.TrimSpace(out)) > 0 {
				t.Errorf("%s %s: %v\n%s", strings.Join(reader, " "), filepath.Base(file), err, out)
			}
		}
	}
	if read == 0 {
		t.Skip("neither groff nor mandoc is installed (Debian: groff-base, mandoc)")
	}
}

// TestEscapes checks that texts of commands are no requests and no escape sequences.
func TestEscapes(t *testing.T) {
	t.Parallel()
	cmd := &cobra.Command{
		Use: "x", Short: "Print \\n and '…'", Run: func(*cobra.Command, []string) {},
		Long: ".so /etc/passwd\n'br\n\na\\fBb\n\n  kept  as\n    it is", Example: "  x --'a' | \"b\"",
	}
	got := book.Pages(cmd)["x.1"]
	for _, want := range []string{
		"\n\\&.so /etc/passwd\n", "\n\\&\\(aqbr\n", "\na\\efBb\n", "\nkept  as\n  it is\n", "x \\- Print \\en and \\(aq\\[u2026]\\(aq\n",
		"\nx \\-\\-\\(aqa\\(aq | \\(dqb\\(dq\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the page lacks %q:\n%s", want, got)
		}
	}
}

// TestProgramHasNoPages checks that nothing for releases is a part of the program.
func TestProgramHasNoPages(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "portolan.dev/portolan/cmd/portolan").Output()
	if err != nil {
		t.Fatal(err)
	}
	for pkg := range strings.Lines(string(out)) {
		if strings.HasPrefix(pkg, "portolan.dev/portolan/build/") || strings.Contains(pkg, "cobra/doc") {
			t.Errorf("the program has the package %s", pkg)
		}
	}
}
