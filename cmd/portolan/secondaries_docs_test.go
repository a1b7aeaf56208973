//go:build unix

package main

import (
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSecondaryConfigurationsInDocs checks the configurations in docs/operate.md with the
// servers' own checkers.
func TestSecondaryConfigurationsInDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, checker := range map[string]struct {
		binary, pkg string
		args        []string
	}{
		"Knot": {"knotc", "knot", []string{"-c", "CONFIG", "conf-check"}},
		"NSD":  {"nsd-checkconf", "nsd", []string{"CONFIG"}},
	} {
		t.Run(name, func(t *testing.T) {
			path := require(t, checker.binary, checker.pkg)
			block := regexp.MustCompile("(?s)For " + name + "[^`]*```[a-z]+\n(.*?)```").FindSubmatch(page)
			if block == nil {
				t.Fatal("operate.md has no configuration")
			}
			file := filepath.Join(t.TempDir(), "config")
			write(t, file, strings.ReplaceAll(string(block[1]), "SECRET", base64.StdEncoding.EncodeToString([]byte("32 octets, as openssl rand gives"))))
			args := strings.Fields(strings.ReplaceAll(strings.Join(checker.args, " "), "CONFIG", file))
			if out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", checker.binary, err, out)
			}
		})
	}
}
