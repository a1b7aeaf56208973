package page

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// forbidden are what the files of the page must not have: ways to parse text as HTML or as a program, scripts and
// styles within HTML, and addresses of others.
var forbidden = map[string]*regexp.Regexp{
	"HTML from text":         regexp.MustCompile(`(inner|outer)HTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|setHTMLUnsafe|srcdoc`),
	"a program from text":    regexp.MustCompile(`\beval\(|new Function\b|setTimeout\(\s*["'` + "`" + `]`),
	"a script within HTML":   regexp.MustCompile(`(?i)<script(?:\s[^>]*)?>[^<]|<style`),
	"a listener within HTML": regexp.MustCompile(`(?i)<[a-z][^<>]*\son[a-z]+\s*=`),
	"a style within HTML":    regexp.MustCompile(`(?i)<[a-z][^<>]*\sstyle\s*=|setAttribute\(["']style|cssText`),
	"an address of others":   regexp.MustCompile(`(?i)(src|href)=["']?(https?:)?//|url\(["']?(https?:)?//|@import|from ["'](https?:)?//|import\(["']https?:`),
}

// TestFiles verifies what the files of the page have, and that node accepts the modules where it is there.
func TestFiles(t *testing.T) {
	t.Parallel()
	node, _ := exec.LookPath("node")
	checked := 0
	err := filepath.WalkDir(files, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		checked++
		for what, pattern := range forbidden {
			if at := pattern.FindIndex(text); at != nil {
				t.Errorf("%s:%d has %s: %s", file, 1+strings.Count(string(text[:at[0]]), "\n"), what, text[at[0]:at[1]])
			}
		}
		own := !strings.Contains(file, "vendor")
		for n, line := range strings.Split(string(text), "\n") {
			if own && len([]rune(line)) > 120 {
				t.Errorf("%s:%d has %d columns, want at most 120", file, n+1, len([]rune(line)))
			}
		}
		if own && strings.HasSuffix(file, ".js") && node != "" {
			cmd := exec.Command(node, "--input-type=module", "--check")
			cmd.Stdin = strings.NewReader(string(text))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("node --check %s: %v\n%s", file, err, out)
			}
		}
		return nil
	})
	if err != nil || checked < 15 {
		t.Errorf("%s: %d files, %v", files, checked, err)
	}
}

// TestPreload verifies that index.html names the modules of the first view, so that they are all asked for at once.
func TestPreload(t *testing.T) {
	t.Parallel()
	index, err := os.ReadFile(files + "/index.html")
	if err != nil {
		t.Fatal(err)
	}
	p := open(t, serve(t).URL, "")
	loaded, _ := p.eval(`performance.getEntriesByType("resource").map((e) => new URL(e.name).pathname).filter((p) => p.endsWith(".js")).join("\n")`).(string)
	for path := range strings.SplitSeq(loaded, "\n") {
		_, name, _ := strings.Cut(strings.TrimPrefix(path, "/page/"), "/") // after the hash of all files
		if !strings.Contains(string(index), `"/page/`+name+`"`) {
			t.Errorf("index.html does not name %s, which the first view loads", name)
		}
	}
}
