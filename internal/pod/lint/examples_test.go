package lint_test

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/resolvconf"
	"portolan.dev/portolan/internal/kube/manifest"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/lint"
)

// The files of an example.
const (
	before   = "before.yaml"
	after    = "after.yaml"
	findings = "findings"
)

// usualNode returns the settings of nodes in examples without a comment.
func usualNode() dnsconfig.NodeSettings {
	return dnsconfig.NodeSettings{
		ClusterDomain: "cluster.local",
		ClusterDNS:    []netip.Addr{netip.MustParseAddr("10.96.0.10")},
		ResolvConf:    &resolvconf.Config{Nameservers: []netip.Addr{netip.MustParseAddr("192.0.2.53")}},
	}
}

// settings parses the comment of an example: lines with cluster-dns and
// cluster-domain, whose value may be none.
func settings(t *testing.T, comment string) dnsconfig.NodeSettings {
	t.Helper()
	n := usualNode()
	for line := range strings.Lines(comment) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch key {
		case "cluster-dns":
			n.ClusterDNS = nil
			for text := range strings.FieldsSeq(strings.TrimPrefix(value, "none")) {
				n.ClusterDNS = append(n.ClusterDNS, netip.MustParseAddr(text))
			}
		case "cluster-domain":
			n.ClusterDomain = strings.TrimPrefix(value, "none")
		default:
			t.Fatalf("unknown setting %q", line)
		}
	}
	return n
}

// load reads manifests into a Store.
func load(t *testing.T, path string) *cluster.Store {
	t.Helper()
	store := cluster.NewStore()
	report, err := manifest.New(manifest.Config{Path: path, Whole: true, Store: store, Log: slog.New(slog.DiscardHandler)}).Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range report.Problems {
		if !strings.Contains(p.Error(), "cluster IP") { // a rule reports it, too
			t.Error(p)
		}
	}
	return store
}

// all returns the findings about the objects of a Store.
func all(store *cluster.Store, node dnsconfig.NodeSettings) (found []lint.Finding) {
	store.View(func(v *cluster.View) {
		c := newCluster(v, node)
		found = c.CheckAll()
	})
	return found
}

func newCluster(v *cluster.View, node dnsconfig.NodeSettings) *lint.Linter {
	return &lint.Linter{
		View: v, Domains: []string{"cluster.local"}, DNSService: cluster.Key{Namespace: "kube-system", Name: "kube-dns"},
		Served: []string{"clster.local", "clstr.local"},
		Node:   func(*dnsconfig.Subject) dnsconfig.NodeSettings { return node },
	}
}

// example is the example of a rule.
type example struct {
	archive      *txtar.Archive
	comment      string
	before       string
	findings     string // as in the archive
	found, cured []lint.Finding
}

// findingLines returns the findings of the broken example, one per line.
func (e *example) findingLines() string {
	var b strings.Builder
	for _, f := range e.found {
		where := f.Object.String()
		if f.Field != "" {
			where += ": " + f.Field
		}
		fmt.Fprintf(&b, "%s: %s: %s; %s\n", f.Severity, where, f.Message, f.Fix)
	}
	return b.String()
}

func exampleFile(rule string) string { return filepath.Join("examples", rule+".txtar") }

func readExample(t *testing.T, id string) example {
	t.Helper()
	archive, err := txtar.ParseFile(exampleFile(id))
	if err != nil {
		t.Fatal(err)
	}
	e := example{archive: archive, comment: string(archive.Comment)}
	node := settings(t, e.comment)
	for _, f := range archive.Files {
		if f.Name == findings {
			e.findings = string(f.Data)
			continue
		}
		path := filepath.Join(t.TempDir(), f.Name)
		if err := os.WriteFile(path, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
		found := all(load(t, path), node)
		switch f.Name {
		case before:
			e.before, e.found = string(f.Data), found
		case after:
			e.cured = found
		default:
			t.Fatalf("%s has a file %s", id, f.Name)
		}
	}
	return e
}

// TestExamples verifies that the example of each rule breaks that rule and no other,
// and that the cured example breaks none.
func TestExamples(t *testing.T) {
	t.Parallel()
	for _, rule := range lint.Rules() {
		t.Run(rule.ID, func(t *testing.T) {
			t.Parallel()
			e := readExample(t, rule.ID)
			var rules []string
			for _, f := range e.found {
				rules = append(rules, f.Rule)
				if f.Message == "" || f.Fix == "" || strings.HasSuffix(f.Message, ".") || strings.HasSuffix(f.Fix, ".") {
					t.Errorf("%s: message %q, fix %q: want text without a full stop", before, f.Message, f.Fix)
				}
			}
			if !slices.Equal(slices.Compact(rules), []string{rule.ID}) {
				t.Errorf("%s: findings %+v, want those of %s", before, e.found, rule.ID)
			}
			if len(e.cured) > 0 {
				t.Errorf("%s: findings %+v, want none", after, e.cured)
			}
		})
	}
}
