package corefile_test

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/migrate/corefile"
)

var update = flag.Bool("update", false, "write the translations into testdata")

// parsers has the parser for each name of an input file.
var parsers = map[string]func(path string, data []byte) (*corefile.Translation, error){
	"Corefile": func(path string, data []byte) (*corefile.Translation, error) {
		return corefile.Parse(path, data, corefile.Options{})
	},
	"kube-dns.yaml": corefile.ParseKubeDNS,
}

// TestTranslation checks the translations of the archives in testdata. Each archive has
// cases: CLAIM/Corefile, the resulting configuration, and the notes with their kinds. A
// case with another file name is the content of a block with "kubernetes cluster.local",
// from line 3 on; its configuration has only the lines that result from it.
func TestTranslation(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) < 5 {
		t.Fatalf("files %q, %v", files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) { checkArchive(t, file) })
	}
}

func checkArchive(t *testing.T, file string) {
	t.Helper()
	a, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	made := &txtar.Archive{Comment: a.Comment}
	for _, f := range a.Files {
		claim, name := filepath.Split(f.Name)
		if name == "portolan.yaml" || name == "notes" {
			continue
		}
		text, notes := translated(t, name, f.Data)
		made.Files = append(made.Files, f,
			txtar.File{Name: claim + "portolan.yaml", Data: []byte(text)}, txtar.File{Name: claim + "notes", Data: []byte(notes)})
	}
	got := txtar.Format(made)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(string(txtar.Format(a)), string(got)); diff != "" && !*update {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// translated returns the translation of a file and its notes.
func translated(t *testing.T, name string, data []byte) (text, notes string) {
	t.Helper()
	around := ""
	parse, ok := parsers[name]
	if !ok { // the content of a block
		parse, name, around = parsers["Corefile"], "Corefile", ".:53 {\nkubernetes cluster.local\n%s}\n"
		data = fmt.Appendf(nil, around, data)
	}
	made, err := parse(name, data)
	if err != nil {
		return "", "error: " + err.Error() + "\n"
	}
	wantValid(t, made)
	text = yamlOf(t, made)
	if around != "" {
		plain, err := parse(name, fmt.Appendf(nil, around, ""))
		if err != nil {
			t.Fatal(err)
		}
		text = without(text, yamlOf(t, plain))
	}
	var b strings.Builder
	for _, n := range made.Notes {
		fmt.Fprintln(&b, &n)
	}
	return text, b.String()
}

func yamlOf(t *testing.T, made *corefile.Translation) string {
	t.Helper()
	text, err := made.Text()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// without returns text without the lines of another text. The line "dns:" remains above
// keys of that section.
func without(text, other string) string {
	theirs := strings.SplitAfter(other, "\n")
	var left []string
	for _, line := range strings.SplitAfter(text, "\n") {
		if line != "" && line != "dns:\n" && slices.Contains(theirs, line) {
			continue
		}
		if n := len(left); n > 0 && left[n-1] == "dns:\n" && !strings.HasPrefix(line, " ") {
			left = left[:n-1]
		}
		left = append(left, line)
	}
	return strings.Join(left, "")
}

// wantValid checks that the written configuration can be read and has the same settings.
func wantValid(t *testing.T, made *corefile.Translation) {
	t.Helper()
	text := yamlOf(t, made)
	if strings.Contains(text, "ca: ") {
		return // the file does not exist
	}
	path := filepath.Join(t.TempDir(), "portolan.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	read, err := config.Read(path)
	if err != nil {
		t.Errorf("Read of the translation: %v\n%s", err, text)
		return
	}
	again, err := read.Text(made.Origins)
	if err != nil || string(again) != text {
		t.Errorf("written again: %v (-first +second):\n%s", err, cmp.Diff(text, string(again)))
	}
}

// TestImport checks that snippets, files and variables are expanded by the parser, and
// that notes name the imported file.
func TestImport(t *testing.T) {
	t.Setenv("PORTOLAN_TEST_TTL", "17")
	dir := t.TempDir()
	path := filepath.Join(dir, "Corefile")
	write(t, path, `(common) {
    errors
    cache {$PORTOLAN_TEST_TTL}
}
.:53 {
    kubernetes {%PORTOLAN_TEST_ZONE%}cluster.local {
        ttl {$PORTOLAN_TEST_TTL}
    }
    import common
    import custom/*.override
}
import custom/*.server
`)
	if err := os.Mkdir(filepath.Join(dir, "custom"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "custom", "a.override"), "forward . 10.0.0.2\nwhoami\n")
	write(t, filepath.Join(dir, "custom", "b.server"), "corp.example {\n  forward . 10.0.0.3\n}\n")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	made, err := corefile.Parse(path, text, corefile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := made.Config
	if c.DNS.TTL != 17 || c.DNS.Cache.MaxTTL != 17 || len(c.DNS.Forward.Routes) != 2 || c.DNS.Forward.Routes[1].Suffix != "corp.example" {
		t.Errorf("Parse = %+v, want TTLs of 17 and two routes", c)
	}
	want := filepath.Join(dir, "custom", "a.override") + ":2: missing: whoami: "
	if last := made.Notes[len(made.Notes)-1].String(); !strings.HasPrefix(last, want) {
		t.Errorf("last note %q, want %q", last, want)
	}

	before, err := contentOf(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "custom", "c.server"), "other.example {\n  forward . 10.0.0.4\n}\n")
	after, err := contentOf(path)
	if err != nil || string(before) == string(after) {
		t.Errorf("Content with one more file: %v, the same: %t", err, string(before) == string(after))
	}
}

func contentOf(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return corefile.Content(path, data)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestOptions checks the default port and the address families.
func TestOptions(t *testing.T) {
	made, err := corefile.Parse("Corefile", []byte(".\n kubernetes cluster.local\n"), corefile.Options{Port: "1053", IPv4Only: true})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"0.0.0.0:1053"}; !slices.Equal(made.Config.DNS.Listen, want) {
		t.Errorf("listen %q, want %q", made.Config.DNS.Listen, want)
	}
}

// TestInterfaces checks that a block is bound to the addresses of an interface, without
// those of the option except.
func TestInterfaces(t *testing.T) {
	const text = "cluster.local {\n bind eth0 127.0.0.1 {\n except eth1 10.0.0.3\n }\n kubernetes\n}\n"
	host := corefile.Options{InterfaceAddrs: func(name string) ([]netip.Addr, error) {
		addrs, ok := map[string][]netip.Addr{
			"eth0": {netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.3"), netip.MustParseAddr("10.0.0.4"), netip.MustParseAddr("fe80::1%eth0")},
			"eth1": {netip.MustParseAddr("10.0.0.4")},
		}[name]
		if !ok {
			return nil, errors.New("no such interface")
		}
		return addrs, nil
	}}
	made, err := corefile.Parse("Corefile", []byte(text), host)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"10.0.0.2:53", "[fe80::1%eth0]:53", "127.0.0.1:53"}; !slices.Equal(made.Config.DNS.Listen, want) || !made.Complete() {
		t.Errorf("listen %q, notes %v; want %q and nothing missing", made.Config.DNS.Listen, made.Notes, want)
	}
	_, err = corefile.Parse("Corefile", []byte(strings.ReplaceAll(text, "eth1", "eth2")), host)
	if want := `corefile Corefile:3: bind except: "eth2" is neither an address nor an interface: no such interface`; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	_, err = corefile.Parse("Corefile", []byte("cluster.local {\n bind eth1 {\n except 10.0.0.4\n }\n kubernetes\n}\n"), host)
	if want := "corefile Corefile:1: cluster.local: there is no address to listen on"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// FuzzParse checks that any Corefile is either translated to a valid configuration or
// rejected.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, c := range a.Files {
			if name := filepath.Base(c.Name); name != "notes" && name != "portolan.yaml" {
				f.Add(string(c.Data))
			}
		}
	}
	f.Add("(a) {\n import b\n}\n(b) {\n import a\n}\nimport a\n")
	path := filepath.Join(f.TempDir(), "Corefile")
	f.Fuzz(func(t *testing.T, text string) {
		// Exclude imports of host files, and snippets that grow exponentially.
		if len(text) > 4096 || strings.Count(text, "import") > 2 || strings.Contains(text, "import /") || strings.Contains(text, "..") {
			t.Skip()
		}
		made, err := corefile.Parse(path, []byte(text), corefile.Options{})
		if err != nil {
			return
		}
		wantValid(t, made)
		if _, err := corefile.ParseKubeDNS(path, []byte(text)); err == nil {
			t.Logf("a Corefile and a ConfigMap: %q", text)
		}
	})
}
