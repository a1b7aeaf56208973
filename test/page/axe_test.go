package page

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// The version of axe-core, which finds violations of the Web Content Accessibility Guidelines, and the hash of its
// script. It comes from npm, and is kept in the user's cache.
const (
	axeVersion = "4.14.1"
	axeHash    = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
)

// axe returns the script of axe-core.
func axe(tb testing.TB) string {
	tb.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		tb.Fatal(err)
	}
	file := filepath.Join(cache, "portolan", "axe-core-"+axeVersion+".min.js")
	text, err := os.ReadFile(file)
	if err == nil && hashOf(text) == axeHash {
		return string(text)
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		tb.Skip("skipped: accessibility is tested by axe-core, which npm fetches, which is missing (Debian: apt-get install npm)")
	}
	dir := tb.TempDir()
	cmd := exec.Command(npm, "pack", "--silent", "axe-core@"+axeVersion)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Skipf("skipped: axe-core cannot be fetched: npm pack axe-core@%s: %v: %s", axeVersion, err, out)
	}
	if text, err = unpack(filepath.Join(dir, "axe-core-"+axeVersion+".tgz"), "package/axe.min.js"); err != nil {
		tb.Fatal(err)
	}
	if got := hashOf(text); got != axeHash {
		tb.Fatalf("axe.min.js of axe-core %s has the hash %s, want %s", axeVersion, got, axeHash)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

func hashOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// unpack returns a file of a compressed archive.
func unpack(archive, name string) ([]byte, error) {
	text, err := os.ReadFile(archive)
	if err != nil {
		return nil, err
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", archive, err)
	}
	for r := tar.NewReader(unzipped); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%s: no %s", archive, name)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", archive, err)
		}
		if header.Name == name {
			return io.ReadAll(r)
		}
	}
}

// TestAccessible verifies that axe-core finds no violation in any view, in light and dark, wide and narrow.
func TestAccessible(t *testing.T) {
	t.Parallel()
	script := axe(t)
	s := serve(t)
	for _, c := range []struct {
		scheme string
		width  int64
	}{{"light", 1100}, {"dark", 360}} {
		p := open(t, s.URL, "#/top", media("prefers-color-scheme", c.scheme), chromedp.EmulateViewport(c.width, 800))
		p.expected = []string{"404 (Not Found)"}
		for _, view := range views {
			p.visit(view)
			if strings.HasPrefix(view, "#/tail") {
				p.until(`document.querySelector("tbody tr")`)
			}
			p.violations(script, fmt.Sprintf("%q, %s, %d pixels", view, c.scheme, c.width))
		}
		p.visit("#/explain")
		p.eval(`document.querySelector("details").open = true; document.getElementById("search-text").focus()`)
		p.press("web")
		p.until(`document.querySelectorAll("#search-list li").length > 0`)
		p.violations(script, "the list of the box of search, "+c.scheme)
	}
}

// violations fails the test for what axe-core finds.
func (t *tab) violations(script, what string) {
	t.Helper()
	t.eval(script + `; window.axe !== undefined`)
	found, _ := t.eval(`axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] }).then((r) =>
		r.passes.length < 10 ? "axe-core looked at nothing" :
		r.violations.map((v) => v.id + ": " + v.help + "\n" + v.nodes.slice(0, 3).map((n) => "  " + n.html.slice(0, 200) + "\n  " + n.failureSummary).join("\n")).join("\n"))`).(string)
	if found != "" {
		t.Errorf("%s: %s", what, found)
	}
}
