package apiobject_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"golang.org/x/tools/txtar"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/manifest"
	"portolan.dev/portolan/internal/kube/simulate"
	"portolan.dev/portolan/internal/kube/simulate/alloc"
	"portolan.dev/portolan/internal/kube/simulate/apiobject"
	"portolan.dev/portolan/internal/pod/serviceenv"
)

// A scenario file describes the results of manifests in a sequence of states. It is a
// txtar archive whose comment describes the scenario and has lines "key: values":
//
//	cites: ID ...         the examples of docs/spec-examples.md that it covers
//	services: RANGE,...   the ranges of cluster IPs (10.96.0.0/16)
//	services2: RANGE,...  ranges from the second state on, after a restart; and so on
//	pods: RANGE,...       the ranges of Pods (10.244.0.0/16)
//	max-endpoints: N      the maximum number of endpoints per slice
//
// The files for the first state are manifests in manifests/, and:
//
//	expect.yaml  documents, each of which an object must contain: mappings by
//	             subset, lists by position. null means that the key is absent,
//	             "in A-B" or "in PREFIX" an address or number in that range.
//	             A document without a name matches an object of its kind and
//	             namespace that no previous document matched. If the name ends
//	             in *, all objects with that prefix must match.
//	counts       KIND NAMESPACE N: the number of objects; or hint ZONE N: the
//	             number of endpoints with a hint for a zone
//	refused      a line for each reported problem, a part of its text
//	env.NS       environment variables that Pods of a namespace have
//
// The files for the second state are manifests2/, expect2.yaml, counts2, refused2 and
// env2.NS, and so on; each state has only its own manifests. A manifest NAME*N.yaml is
// repeated N times, each "#" replaced by the number of the copy.

const scenarioDir = "../../../../testdata/simulate"

type scenario struct {
	cites        []string
	services     map[int]string // ranges by the first state to which they apply
	pods         string
	maxEndpoints int
	states       []*state
}

type state struct {
	manifests map[string][]byte
	expect    []any
	counts    []string
	refused   []string
	env       map[string][]string
}

func parseScenario(data []byte) (*scenario, error) {
	a := txtar.Parse(data)
	s := &scenario{services: map[int]string{0: "10.96.0.0/16"}, pods: "10.244.0.0/16"}
	for line := range strings.Lines(string(a.Comment)) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok {
			continue
		}
		var err error
		switch name, number := cutState(key); name {
		case "cites":
			s.cites = append(s.cites, strings.Fields(value)...)
		case "services":
			s.services[number] = value
		case "pods":
			s.pods = value
		case "max-endpoints":
			s.maxEndpoints, err = strconv.Atoi(value)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", line, err)
		}
	}
	for _, f := range a.Files {
		if err := s.file(f); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	for i, st := range s.states {
		if st == nil || len(st.expect)+len(st.counts)+len(st.refused)+len(st.env) == 0 {
			return nil, fmt.Errorf("state %d: no expectations", i+1)
		}
	}
	return s, nil
}

// cutState cuts the number of a state off a file name; the first state has none.
func cutState(name string) (base string, state int) {
	base = strings.TrimRight(name, "0123456789")
	if n, err := strconv.Atoi(name[len(base):]); err == nil {
		return base, n - 1
	}
	return base, 0
}

func (s *scenario) file(f txtar.File) error {
	first, rest, below := strings.Cut(f.Name, "/")
	if !below {
		first, rest, _ = strings.Cut(f.Name, ".")
	}
	kind, number := cutState(first)
	for len(s.states) <= number {
		s.states = append(s.states, &state{manifests: make(map[string][]byte), env: make(map[string][]string)})
	}
	st := s.states[number]
	switch lines := strings.Split(strings.TrimSpace(string(f.Data)), "\n"); {
	case kind == "manifests" && below:
		st.manifests[rest] = f.Data
	case kind == "expect" && rest == "yaml":
		for dec := yaml.NewDecoder(bytes.NewReader(f.Data)); ; {
			var doc any
			if err := dec.Decode(&doc); err != nil {
				if len(st.expect) == 0 || err.Error() != "EOF" {
					return err
				}
				return nil
			}
			st.expect = append(st.expect, doc)
		}
	case kind == "counts" && rest == "":
		st.counts = lines
	case kind == "refused" && rest == "":
		st.refused = lines
	case kind == "env" && rest != "":
		st.env[rest] = lines
	default:
		return errors.New("unknown file")
	}
	return nil
}

// TestScenarios runs the scenarios in testdata/simulate.
func TestScenarios(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(scenarioDir, "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d scenarios, error %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			runScenario(t, readScenario(t, file))
		})
	}
}

func readScenario(t *testing.T, file string) *scenario {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s, err := parseScenario(data)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return s
}

// run is a simulated cluster between two restarts.
type run struct {
	store   *cluster.Store
	control *simulate.ControlPlane
	source  *manifest.Source
}

func runScenario(t *testing.T, s *scenario) {
	t.Helper()
	dir := t.TempDir()
	var r *run
	for i, st := range s.states {
		if ranges, ok := s.services[i]; ok {
			r = newRun(t, s, ranges, dir, r)
		}
		st.write(t, dir)
		report, err := r.source.Load()
		if err != nil {
			t.Fatal(err)
		}
		t.Run(fmt.Sprintf("state %d", i+1), func(t *testing.T) { r.check(t, st, report) })
	}
}

// newRun starts a cluster with the snapshot of the previous one.
func newRun(t *testing.T, s *scenario, services, dir string, before *run) *run {
	t.Helper()
	control, err := simulate.New(simulate.Config{
		ServiceRanges: prefixes(services), PodRanges: prefixes(s.pods), NodePorts: alloc.Ports{First: 30000, Last: 32767},
		MaxEndpoints: s.maxEndpoints, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	if before != nil {
		before.store.View(control.Recall)
	}
	r := &run{store: cluster.NewStore(), control: control}
	r.source = manifest.New(manifest.Config{Path: dir, Whole: true, ControlPlane: control, Store: r.store, Log: slog.New(slog.DiscardHandler)})
	return r
}

func prefixes(list string) (all []netip.Prefix) {
	for text := range strings.SplitSeq(list, ",") {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// write replaces the manifests in a directory by the state's.
func (st *state) write(t *testing.T, dir string) {
	t.Helper()
	old, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range old {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	for name, data := range st.manifests {
		if _, times, ok := strings.Cut(strings.TrimSuffix(name, ".yaml"), "*"); ok {
			n, err := strconv.Atoi(times)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			var all bytes.Buffer
			for i := range n {
				all.WriteString("---\n")
				all.Write(bytes.ReplaceAll(data, []byte("#"), strconv.AppendInt(nil, int64(i), 10)))
			}
			data = all.Bytes()
		}
		if err := os.WriteFile(filepath.Join(dir, strings.ReplaceAll(name, "*", "-")), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func (r *run) check(t *testing.T, st *state, report manifest.Report) {
	t.Helper()
	for _, err := range st.checkProblems(report.Problems) {
		t.Error(err)
	}
	used := make(map[any]bool)
	for _, want := range st.expect {
		if err := r.checkDocument(t, want.(map[string]any), used); err != nil {
			t.Error(err)
		}
	}
	for _, line := range st.counts {
		var kind, ns string
		var want int
		if n, err := fmt.Sscan(line, &kind, &ns, &want); err != nil || n != 3 {
			t.Fatalf("counts: %q: %v", line, err)
		}
		var got int
		if kind == "hint" {
			got = r.hints(t, ns)
		} else {
			got = len(r.objects(t, apiobject.Choice{Kind: kindOf(t, kind), Namespace: ns}))
		}
		if got != want {
			t.Errorf("counts: %s: got %d", line, got)
		}
	}
	for ns, want := range st.env {
		var e serviceenv.Environment
		r.store.View(func(v *cluster.View) { e = serviceenv.Compute(v, ns, new(cluster.PodSpec)) })
		for _, line := range want {
			if !slices.ContainsFunc(e.Variables, func(v serviceenv.Variable) bool { return v.String() == line }) {
				t.Errorf("variables: got %v, want %s", e.Variables, line)
			}
		}
	}
}

// checkProblems compares the reported problems with the expected ones.
func (st *state) checkProblems(problems []manifest.Problem) (wrong []error) {
	left := slices.Clone(problems)
	for _, words := range st.refused {
		i := slices.IndexFunc(left, func(p manifest.Problem) bool { return p.Rejected && strings.Contains(p.Error(), words) })
		if i < 0 {
			wrong = append(wrong, fmt.Errorf("not refused: %s; refused: %v", words, left))
			continue
		}
		left = slices.Delete(left, i, i+1)
	}
	for _, p := range left {
		wrong = append(wrong, fmt.Errorf("unexpected: %w", p))
	}
	return wrong
}

func kindOf(t *testing.T, name string) cluster.Kind {
	t.Helper()
	i := slices.IndexFunc(cluster.Kinds(), func(k cluster.Kind) bool { return k.String() == name })
	if i < 0 {
		t.Fatalf("no kind %q", name)
	}
	return cluster.Kinds()[i]
}

// objects returns the chosen objects, decoded from JSON.
func (r *run) objects(t *testing.T, choice apiobject.Choice) (objects []map[string]any) {
	t.Helper()
	c := apiobject.Builder{Store: r.store, Declared: r.source.Declared, Slices: r.control.Slices}
	all, err := c.Objects(choice)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		object := make(map[string]any)
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.UseNumber()
		if err := dec.Decode(&object); err != nil {
			t.Fatal(err)
		}
		objects = append(objects, object)
	}
	return objects
}

// hints returns the number of endpoints with a hint for a zone.
func (r *run) hints(t *testing.T, zone string) (n int) {
	t.Helper()
	for _, slice := range r.objects(t, apiobject.Choice{Kind: cluster.KindEndpointSlice}) {
		endpoints, _ := slice["endpoints"].([]any)
		for _, e := range endpoints {
			want := map[string]any{"hints": map[string]any{"forZones": []any{map[string]any{"name": zone}}}}
			if contains(want, e, "") == nil {
				n++
			}
		}
	}
	return n
}

// checkDocument compares the objects that an expected document describes with it.
func (r *run) checkDocument(t *testing.T, want map[string]any, used map[any]bool) error {
	t.Helper()
	meta, _ := want["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	ns, _ := meta["namespace"].(string)
	kind, _ := want["kind"].(string)
	if ns == "" {
		ns = "default"
	}
	choice := apiobject.Choice{Kind: kindOf(t, kind), Namespace: ns}
	prefix, several := strings.CutSuffix(name, "*")
	if several {
		delete(meta, "name")
	} else {
		choice.Name = name
	}
	var differences []error
	matching := 0
	for _, got := range r.objects(t, choice) {
		gotName := got["metadata"].(map[string]any)["name"].(string)
		if several && !strings.HasPrefix(gotName, prefix) {
			continue
		}
		id := fmt.Sprint(kind, ns, gotName)
		switch err := contains(want, got, kind+" "+gotName); {
		case err != nil:
			differences = append(differences, err)
		case name == "" && used[id]:
		default:
			used[id] = true
			if matching++; name == "" {
				return nil
			}
		}
	}
	switch {
	case several && len(differences) > 0:
		return differences[0]
	case matching == 0 && len(differences) > 0:
		return fmt.Errorf("%v", differences)
	case matching == 0:
		return fmt.Errorf("no %s %s/%s", kind, ns, name)
	}
	return nil
}

// contains returns an error if got does not contain want; at is the path of both in the
// object.
func contains(want, got any, at string) error {
	switch want := want.(type) {
	case map[string]any:
		m, ok := got.(map[string]any)
		if !ok {
			return fmt.Errorf("%s: %v is no mapping", at, got)
		}
		for k, w := range want {
			if err := contains(w, m[k], at+"."+k); err != nil {
				return err
			}
		}
		return nil
	case []any:
		l, ok := got.([]any)
		if !ok || len(l) != len(want) {
			return fmt.Errorf("%s: %v, want %v", at, got, want)
		}
		for i, w := range want {
			if err := contains(w, l[i], fmt.Sprintf("%s[%d]", at, i)); err != nil {
				return err
			}
		}
		return nil
	case string:
		if bounds, ok := strings.CutPrefix(want, "in "); ok && within(bounds, fmt.Sprint(got)) {
			return nil
		}
	}
	if n, ok := got.(json.Number); ok && n.String() == fmt.Sprint(want) {
		return nil
	}
	if want != got {
		return fmt.Errorf("%s: %v, want %v", at, got, want)
	}
	return nil
}

// within reports whether an address or a number is in PREFIX, or in FIRST-LAST.
func within(bounds, value string) bool {
	addr, err := netip.ParseAddr(value)
	if prefix, bad := netip.ParsePrefix(bounds); bad == nil {
		return err == nil && prefix.Contains(addr)
	}
	first, last, _ := strings.Cut(bounds, "-")
	if err == nil {
		return netip.MustParseAddr(first).Compare(addr) <= 0 && addr.Compare(netip.MustParseAddr(last)) <= 0
	}
	var low, high, n int
	if _, err := fmt.Sscan(first+" "+last+" "+value, &low, &high, &n); err != nil {
		return false
	}
	return low <= n && n <= high
}
