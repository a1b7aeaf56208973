package scenario_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/compile"
	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/kube/manifest"
)

const (
	gatewayDir          = "../../testdata/gateway"
	gatewayCoverageFile = "../../docs/gateway-coverage.md"
)

// gatewayScenario is a file of testdata/gateway: objects that are added to testdata/gateway/cluster.yaml,
// requests with what serves them, and what is said of the objects.
//
//	cites: ID ...             statements of docs/gateway-coverage.md
//	-- objects.yaml --
//	-- requests --
//	METHOD http://HOST[:PORT]/PATH[?QUERY] [NAME=VALUE ...] -> ANSWER
//	-- verdicts --            all conditions but those that all is well, one a line; not compared without it
//
// An ANSWER is "KIND NS/NAME rule N" and the ports of Services that it may go to, or a status and a reason.
type gatewayScenario struct {
	name               string
	cites              []string
	objects            []byte
	requests, verdicts []string
}

func gatewayScenarios(t *testing.T) (all []gatewayScenario) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(gatewayDir, "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s := gatewayScenario{name: strings.TrimSuffix(filepath.Base(file), ".txtar")}
		for line := range strings.Lines(string(archive.Comment)) {
			if ids, ok := strings.CutPrefix(line, "cites: "); ok {
				s.cites = append(s.cites, strings.Fields(ids)...)
			}
		}
		for _, f := range archive.Files {
			lines := strings.Split(strings.TrimSpace(string(f.Data)), "\n")
			switch f.Name {
			case "objects.yaml":
				s.objects = f.Data
			case "requests":
				s.requests = lines
			case "verdicts":
				s.verdicts = lines
			default:
				t.Fatalf("%s: unknown file %s", file, f.Name)
			}
		}
		if len(s.cites) == 0 || len(s.requests) == 0 {
			t.Fatalf("%s: cites %v and has %d requests, want some", file, s.cites, len(s.requests))
		}
		all = append(all, s)
	}
	return all
}

// compile reads the objects of a scenario, and compiles them.
func (s *gatewayScenario) compile(t *testing.T) (tbl *table.Table, verdicts *compile.Verdicts) {
	t.Helper()
	base, err := os.ReadFile(filepath.Join(gatewayDir, "cluster.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	dir, store := t.TempDir(), cluster.NewStore()
	for name, text := range map[string][]byte{"cluster.yaml": base, "objects.yaml": s.objects} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	source := manifest.New(manifest.Config{Path: dir, AllKinds: true, Store: store, Log: slog.New(slog.DiscardHandler)})
	report, err := source.Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range report.Problems {
		t.Error(p)
	}
	c := compile.NewCompiler(compile.Config{
		GatewayController: "portolan.dev/gateway", IngressController: "portolan.dev/ingress",
	})
	store.View(func(v *cluster.View) { tbl = c.Apply(v, &cluster.Changes{Everything: true}).Table })
	return tbl, c.Verdicts()
}

// TestGateways checks what serves the requests of the scenarios in testdata/gateway.
func TestGateways(t *testing.T) {
	t.Parallel()
	for _, s := range gatewayScenarios(t) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			tbl, verdicts := s.compile(t)
			for _, line := range s.requests {
				request, want, ok := strings.Cut(line, " -> ")
				if !ok {
					t.Errorf("%q has no answer", line)
					continue
				}
				if got, err := answerTo(tbl, request); err != nil || got != want {
					t.Errorf("%s: %s, %v; want %s", request, got, err, want)
				}
			}
			if s.verdicts == nil {
				return
			}
			if d := cmp.Diff(s.verdicts, verdictLines(verdicts)); d != "" {
				t.Errorf("verdicts (-want +got)\n%s", d)
			}
		})
	}
}

// answerTo returns what serves a request, as scenarios write it.
func answerTo(t *table.Table, request string) (string, error) {
	words := strings.Fields(request)
	if len(words) < 2 {
		return "", fmt.Errorf("%q is not \"METHOD URL [NAME=VALUE ...]\"", request)
	}
	u, err := url.Parse(words[1])
	if err != nil {
		return "", err
	}
	port := uint64(80)
	if u.Port() != "" {
		if port, err = strconv.ParseUint(u.Port(), 10, 16); err != nil {
			return "", err
		}
	}
	header := make(http.Header)
	for _, field := range words[2:] {
		name, value, _ := strings.Cut(field, "=")
		header.Add(name, value)
	}
	path, err := table.Normalize(u.EscapedPath())
	if err != nil {
		return "", err
	}
	at := t.Port(table.Socket{Port: uint16(port)})
	if at == nil {
		return "no port", nil
	}
	_, found := at.Find(u.Hostname(), &table.Request{Method: words[0], Path: path, Query: u.RawQuery, Header: header})
	if found == nil {
		return "404", nil
	}
	rule := found.Rule
	var text strings.Builder
	fmt.Fprintf(&text, "%s rule %d", rule.Object, rule.Index)
	if rule.Status != 0 {
		fmt.Fprintf(&text, ": %d %s", rule.Status, rule.Reason)
		return text.String(), nil
	}
	for _, b := range rule.Backends {
		if b.Upstream == (table.Upstream{}) {
			text.WriteString(" 500")
		} else {
			fmt.Fprintf(&text, " %s/%s:%d", b.Upstream.Namespace, b.Upstream.Service, b.Upstream.Port)
		}
		if len(rule.Backends) > 1 {
			fmt.Fprintf(&text, "*%d", b.Weight)
		}
	}
	return text.String(), nil
}

// verdictLines returns what is said of objects, but that all is well, in order.
func verdictLines(v *compile.Verdicts) (all []string) {
	well := []string{"Accepted=True Accepted", "ResolvedRefs=True ResolvedRefs", "Conflicted=False NoConflicts"}
	add := func(of string, conditions []cluster.Condition) {
		for _, c := range conditions {
			if text := fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Reason); !slices.Contains(well, text) {
				all = append(all, of+": "+text)
			}
		}
	}
	for key, class := range v.Classes {
		add("gatewayclass "+key.String(), class.Conditions)
	}
	for kind, of := range map[string]map[cluster.Key]*compile.GatewayVerdict{"gateway": v.Gateways, "listenerset": v.Sets} {
		for key, g := range of {
			add(kind+" "+key.String(), g.Conditions)
			for _, l := range g.Listeners {
				name := kind + " " + key.String() + " " + l.Name
				all = append(all, fmt.Sprintf("%s: %d routes", name, l.AttachedRoutes))
				add(name, l.Conditions)
			}
		}
	}
	for key, parents := range v.Routes {
		for _, p := range parents {
			add(fmt.Sprintf("httproute %s at %s/%s", key, p.Parent.Namespace, p.Parent.Name), p.Conditions)
		}
	}
	for key, i := range v.Ingresses {
		for _, p := range i.Problems {
			all = append(all, fmt.Sprintf("ingress %s: %s: %s", key, p.Field, p.Reason))
		}
	}
	for _, s := range v.Shadows {
		all = append(all, fmt.Sprintf("%s rule %d is shadowed by %s", s.Route, s.Index, s.By))
	}
	slices.Sort(all)
	return all
}

// TestGatewayCoverage checks that a scenario cites each statement of docs/gateway-coverage.md, and that each
// citation is of a statement.
func TestGatewayCoverage(t *testing.T) {
	cited := make(map[string][]string)
	for _, s := range gatewayScenarios(t) {
		for _, id := range s.cites {
			cited[id] = append(cited[id], s.name)
		}
	}
	checkCoverage(t, gatewayCoverageFile, cited)
}
