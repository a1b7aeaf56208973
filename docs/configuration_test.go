package docs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/config/key"
)

// generated begins the part of configuration.md that is made from the table of keys.
const generated = "<!-- From here on: go test ./docs -update, from the tables of keys in the packages settings. -->\n"

// TestConfigurationPage: configuration.md shows every key of the table, and the
// file of all defaults that it shows is one.
func TestConfigurationPage(t *testing.T) {
	page, err := os.ReadFile("configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	defaults := defaultsText(t)
	intro, _, ok := strings.Cut(string(page), generated)
	if !ok {
		t.Fatalf("configuration.md has no line %q", generated)
	}
	wantFile(t, "configuration.md", intro+generated+keyTables()+"\n## All defaults\n\n"+fence+"yaml\n"+defaults+fence+"\n")
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(defaults), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := config.Read(file); err != nil {
		t.Errorf("Read(the file of configuration.md) = %v", err)
	}
}

// keySpan is a key with its sections, as pages write it.
var keySpan = regexp.MustCompile("`([a-zA-Z]+(?:\\.[a-zA-Z0-9]+)+)[`:]")

// TestKeysInPages: pages write keys with all their sections, so that no page keeps the
// name of a key that moved.
func TestKeysInPages(t *testing.T) {
	pages, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	table, whole := config.Keys(), 0
	for _, page := range append(pages, "../README.md", "../CHANGELOG.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range keySpan.FindAllStringSubmatch(string(text), -1) {
			if _, ok := table.Find(m[1]); ok {
				whole++
				continue
			}
			for i := range table {
				if full := table[i].Path; strings.HasSuffix(full, "."+m[1]) {
					t.Errorf("%s: %s is %s", page, m[1], full)
				}
			}
		}
	}
	if whole < 100 {
		t.Errorf("pages name %d keys, want 100 at least", whole)
	}
}

// TestConfigurationSchema: configuration.schema.json is the schema of the table.
func TestConfigurationSchema(t *testing.T) {
	text, err := json.MarshalIndent(config.Schema(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	wantFile(t, "configuration.schema.json", string(text)+"\n")
}

// wantFile compares a file with what it is made from; -update writes it.
func wantFile(t *testing.T, path, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is out of date (-table +file); run go test ./docs -update:\n%s", path, diff)
	}
}

func defaultsText(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(config.Default()); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// keyTables has a table of the keys at the root, and one for each section.
func keyTables() string {
	var b strings.Builder
	table := config.Keys()
	b.WriteString("\n## Keys at the root\n" + tableHead)
	for _, k := range table.Children("") {
		if !table.IsSection(k.Path) {
			row(&b, k)
		}
	}
	for _, section := range table {
		if key.Section(section.Path) != "" {
			row(&b, &section)
			continue
		}
		if table.IsSection(section.Path) {
			fmt.Fprintf(&b, "\n## %s\n\n%s\n%s", section.Path, section.Description, tableHead)
		}
	}
	return b.String()
}

const tableHead = "\n| Key | Type | Default | Values | Restart | Description |\n|---|---|---|---|---|---|\n"

func row(b *strings.Builder, k *key.Key) {
	value, restart := config.DefaultText(k.Path), k.RestartText()
	if value != "" {
		value = "`" + value + "`"
	}
	if table := config.Keys(); table.IsSection(k.Path) { // its keys have defaults
		value, restart = "", ""
	}
	fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s | %s |\n",
		k.Path, config.TypeName(k.Path), value, k.RangeText(), restart, k.Description)
}

func keysOf(t *testing.T, text string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := yaml.Unmarshal([]byte(text), &m); err != nil {
		t.Fatal(err)
	}
	return m
}
