package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"portolan.dev/portolan/internal/config"
)

// TestConfigurationPage: the file that docs/configuration.md shows is one of
// every key with its default.
func TestConfigurationPage(t *testing.T) {
	page, err := os.ReadFile("configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, ok := strings.Cut(string(page), fence+"yaml\n")
	block, _, closed := strings.Cut(block, fence)
	if !ok || !closed {
		t.Fatal("configuration.md has no yaml block")
	}
	defaults, err := yaml.Marshal(config.Default())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(keysOf(t, string(defaults)), keysOf(t, block)); diff != "" {
		t.Errorf("keys and values of configuration.md (-defaults +shown):\n%s", diff)
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(block), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := config.Read(file); err != nil {
		t.Errorf("Read(the file of configuration.md) = %v", err)
	}
}

func keysOf(t *testing.T, text string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := yaml.Unmarshal([]byte(text), &m); err != nil {
		t.Fatal(err)
	}
	return m
}
