package app

import (
	"bytes"
	"encoding/base64"
	"flag"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/pod/connection"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/explain"
	"portolan.dev/portolan/internal/pod/path"
	"portolan.dev/portolan/internal/pod/request"
	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/support/testcert"
)

// situationsDir has base.yaml, the objects of a cluster in which all works, and a table for each layer: the situations
// whose first fault is in it.
const situationsDir = "testdata/situations"

// The situations are at least so many: of all, with two faults, and with a fault in each layer.
const (
	leastSituations = 120
	leastOfTwo      = 40
	leastOfLayer    = 12
)

// question is what explain is asked.
type question struct {
	From    string   `yaml:"from"` // NAMESPACE/POD, node, outside or an address
	Node    string   `yaml:"node"` // of clients that are no Pods
	To      string   `yaml:"to"`   // a URL, HOST:PORT[/PROTOCOL], or a name that is only looked up
	Type    string   `yaml:"type"` // of the lookup; empty is A and AAAA
	Libc    string   `yaml:"libc"`
	Method  string   `yaml:"method"`
	Headers []string `yaml:"headers"`
}

// situation is a question in a cluster with faults.
type situation struct {
	Name     string `yaml:"name"`
	question `yaml:",inline"`
	// Instead is the question without the faults that it has itself, which base.yaml has an answer to.
	Instead *question `yaml:"instead"`
	// Change has merge patches (RFC 7396) of objects of base.yaml by "KIND NAMESPACE/NAME" or "KIND NAME"; null
	// removes the object. Add has more objects.
	Change map[string]map[string]any `yaml:"change"`
	Add    []map[string]any          `yaml:"add"`
	// Certificates are other certificates of the Secrets of base.yaml.
	Certificates map[string]certificate `yaml:"certificates"`
	First        fault                  `yaml:"first"`
	Second       *fault                 `yaml:"second"` // in the same layer, or in one behind it
}

// certificate is a certificate for a name, which may have expired.
type certificate struct {
	Name    string `yaml:"name"`
	Expired bool   `yaml:"expired"`
}

// fault is a layer that is not OK, with the first sentence about it and the cure.
type fault struct {
	Layer path.Layer `yaml:"layer"`
	State path.State `yaml:"state"` // empty is broken
	Why   string     `yaml:"why"`
	Cure  string     `yaml:"cure"`
}

// String returns the fault as the tables have it.
func (f *fault) String() string {
	if f == nil {
		return "none"
	}
	return fmt.Sprintf("%s (%s): %s\n    cure: %s", f.Layer, f.State, f.Why, f.Cure)
}

// usualCertificates are those of base.yaml.
var usualCertificates = map[string]certificate{
	"infra/shop-tls": {Name: "*.shop.example"}, "infra/pay-tls": {Name: "pay.example.com"},
}

// TestSituations: of what is wrong, explain gives the first fault first, with its cure, and the second one, too.
func TestSituations(t *testing.T) {
	t.Parallel()
	base := baseObjects(t)
	healthy := buildSituation(t, base, &situation{})
	all := situations(t)
	sane := make(map[string]bool)
	for i := range all {
		s := &all[i]
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			checkFaults(t, explainedIn(t, buildSituation(t, base, s), &s.question), s)
		})
		asked := &s.question
		if s.Instead != nil {
			asked = s.Instead
		}
		if key := fmt.Sprintf("%+v", *asked); !sane[key] {
			sane[key] = true
			if e := explainedIn(t, healthy, asked); !e.Works() {
				t.Errorf("%s: %s without the faults is %s: %s", s.Name, key, e.State, textOf(t, e))
			}
		}
	}
	countSituations(t, all)
}

// countSituations checks that the table has enough of each.
func countSituations(t *testing.T, all []situation) {
	t.Helper()
	of, names, two := make(map[path.Layer]int), make(map[string]bool), 0
	for i := range all {
		s := &all[i]
		if names[s.Name] {
			t.Errorf("%q is twice in the table", s.Name)
		}
		names[s.Name] = true
		of[s.First.Layer]++
		if s.Second != nil {
			two++
			of[s.Second.Layer]++
		}
	}
	if len(all) < leastSituations || two < leastOfTwo {
		t.Errorf("%d situations, %d with two faults, want %d and %d", len(all), two, leastSituations, leastOfTwo)
	}
	for _, l := range path.Layers() {
		if of[l] < leastOfLayer {
			t.Errorf("%d situations have a fault in layer %s, want %d", of[l], l, leastOfLayer)
		}
	}
}

// checkFaults compares the layers that are not OK with the faults of a situation.
func checkFaults(t *testing.T, e *path.Explanation, s *situation) {
	t.Helper()
	first, rest := s.First, s.Second
	if first.State == "" {
		first.State = path.Broken
	}
	if e.State != first.State || e.Cause != first.Layer {
		t.Errorf("%s is %s by %q, want %s by %s", e.Target, e.State, e.Cause, first.State, first.Layer)
	}
	if got := faultOf(e.Step(first.Layer), 0); got == nil || *got != first {
		t.Errorf("the first fault is %s\nwant %s", got, &first)
	}
	behind := false
	var second *fault
	for i := range e.Steps {
		step := &e.Steps[i]
		if step.Assumed != (behind && first.State == path.Broken) {
			t.Errorf("layer %s is assumed: %t", step.Layer, step.Assumed)
		}
		if behind && second == nil && step.State == path.Broken {
			second = faultOf(step, 0)
		}
		behind = behind || step.Layer == first.Layer
	}
	if rest != nil && rest.Layer == first.Layer {
		second = faultOf(e.Step(first.Layer), 1)
	}
	if rest != nil && rest.State == "" {
		rest.State = path.Broken
	}
	if (second == nil) != (rest == nil) || second != nil && *second != *rest {
		t.Errorf("the second fault is %s\nwant %s", second, rest)
	}
	if t.Failed() {
		t.Log(textOf(t, e))
	}
}

// textOf returns an explanation as a terminal shows it.
func textOf(t *testing.T, e *path.Explanation) string {
	t.Helper()
	var b strings.Builder
	if err := e.WriteText(&b, explain.Style{}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// faultOf returns what a layer says first, or after so many other faults.
func faultOf(s *path.Step, after int) *fault {
	if s == nil {
		return nil
	}
	f := &fault{Layer: s.Layer, State: s.State}
	if after < len(s.Diagnoses) {
		f.Why, f.Cure = s.Diagnoses[after].Why, s.Diagnoses[after].Cure
	}
	return f
}

// situations reads the tables.
func situations(t *testing.T) (all []situation) {
	t.Helper()
	for _, l := range path.Layers() {
		text, err := os.ReadFile(filepath.Join(situationsDir, string(l)+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		d := yaml.NewDecoder(bytes.NewReader(text))
		d.KnownFields(true)
		var of []situation
		if err := d.Decode(&of); err != nil {
			t.Fatalf("%s: %v", l, err)
		}
		for i := range of {
			if of[i].First.Layer != l {
				t.Errorf("%q of the table of layer %s begins with layer %q", of[i].Name, l, of[i].First.Layer)
			}
		}
		all = append(all, of...)
	}
	return all
}

// baseObjects reads the objects of base.yaml, in order.
func baseObjects(t *testing.T) (all []map[string]any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(situationsDir, "base.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var o map[string]any
		if err := d.Decode(&o); err != nil {
			break // the last one
		}
		all = append(all, o)
	}
	return all
}

// nameOf returns an object's kind and name as situations have it.
func nameOf(o map[string]any) string {
	meta, _ := o["metadata"].(map[string]any)
	name := fmt.Sprint(meta["name"])
	if namespace, ok := meta["namespace"]; ok {
		name = fmt.Sprintf("%v/%s", namespace, name)
	}
	return fmt.Sprintf("%v %s", o["kind"], name)
}

// patched returns an object with a merge patch (RFC 7396, section 2).
func patched(target any, patch any) any {
	fields, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	old, _ := target.(map[string]any)
	made := maps.Clone(old)
	if made == nil {
		made = make(map[string]any)
	}
	for name, value := range fields {
		if value == nil {
			delete(made, name)
			continue
		}
		made[name] = patched(made[name], value)
	}
	return made
}

// buildSituation reads the cluster of a situation.
func buildSituation(t *testing.T, base []map[string]any, s *situation) *world {
	t.Helper()
	file := filepath.Join(t.TempDir(), "cluster.yaml")
	if err := os.WriteFile(file, situationText(t, base, s), 0o600); err != nil {
		t.Fatal(err)
	}
	return inspected(t, file)
}

// inspected reads the cluster of a file of a situation.
func inspected(t *testing.T, file string) *world {
	t.Helper()
	c := config.Default()
	c.Gateway.Publish.Service = "infra/portolan-gateway"
	c.Manifests = file
	w := newWorld(t, c)
	for _, p := range w.loaded.Problems {
		t.Error(p)
	}
	return w
}

// situationText returns the objects of a situation.
func situationText(t *testing.T, base []map[string]any, s *situation) []byte {
	t.Helper()
	objects, left := make([]map[string]any, 0, len(base)), maps.Clone(s.Change)
	for _, o := range slices.Concat(base, secrets(t, s)) {
		patch, ok := left[nameOf(o)]
		switch delete(left, nameOf(o)); {
		case !ok:
			objects = append(objects, o)
		case patch != nil:
			objects = append(objects, patched(o, patch).(map[string]any))
		}
	}
	for name := range left {
		t.Errorf("base.yaml has no %s", name)
	}
	var text bytes.Buffer
	enc := yaml.NewEncoder(&text)
	for _, o := range slices.Concat(objects, s.Add) {
		if err := enc.Encode(o); err != nil {
			t.Fatal(err)
		}
	}
	return text.Bytes()
}

// secrets returns the Secrets of a situation.
func secrets(t *testing.T, s *situation) (all []map[string]any) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(usualCertificates)) {
		of, ok := s.Certificates[name]
		if !ok {
			of = usualCertificates[name]
		}
		until := time.Now().Add(time.Hour)
		if of.Expired {
			until = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
		}
		c, err := testcert.New(of.Name, until)
		if err != nil {
			t.Fatal(err)
		}
		certificate, key := c.PEM()
		namespace, short, _ := strings.Cut(name, "/")
		all = append(all, map[string]any{
			"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
			"metadata": map[string]any{"namespace": namespace, "name": short},
			"data": map[string]any{
				"tls.crt": base64.StdEncoding.EncodeToString(certificate), "tls.key": base64.StdEncoding.EncodeToString(key),
			},
		})
	}
	return all
}

// explainedIn explains a question as the command does.
func explainedIn(t *testing.T, w *world, q *question) *path.Explanation {
	t.Helper()
	way, name := wayOf(t, w, q)
	if name {
		return path.OfName(w.Explain(t.Context(), way.DNS))
	}
	e, err := w.Path(t.Context(), way)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// wayOf returns the way of a question, and whether it is a name that is only looked up.
func wayOf(t *testing.T, w *world, q *question) (way Way, name bool) {
	t.Helper()
	way = Way{Client: clientOf(t, w, q), DNS: Question{Libc: dnsconfig.Glibc, Subject: dnsconfig.Subject{}}}
	way.DNS.Subject, way.Namespace = way.Client.Subject, way.Client.Subject.Namespace
	if q.Libc == "musl" {
		way.DNS.Libc = dnsconfig.Musl
	}
	switch host, port, err := net.SplitHostPort(strings.TrimSuffix(q.To, "/udp")); {
	case strings.Contains(q.To, "://"):
		method := q.Method
		if method == "" {
			method = "GET"
		}
		m, err := request.ParseMessage(method, q.To, q.Headers)
		if err != nil {
			t.Fatal(err)
		}
		way.Message = &m
		way.Target = connection.Target{Host: m.Name, Port: strconv.FormatUint(uint64(m.Port), 10), Protocol: frontend.TCP}
	case err != nil:
		way.DNS.Name = q.To
		if q.Type != "" {
			if way.DNS.Type, err = dnswire.ParseType(q.Type); err != nil {
				t.Fatal(err)
			}
		}
		return way, true
	default:
		way.Target = connection.Target{Host: host, Port: port, Protocol: frontend.TCP}
		if strings.HasSuffix(q.To, "/udp") {
			way.Target.Protocol = frontend.UDP
		}
	}
	way.DNS.Name = way.Target.Host
	return way, false
}

// clientOf returns the client of a question.
func clientOf(t *testing.T, w *world, q *question) *connection.Client {
	t.Helper()
	c := &connection.Client{Node: q.Node}
	addr, err := netip.ParseAddr(q.From)
	switch {
	case err == nil:
		c.Place, c.Addr = connection.Outside, addr
	case q.From == "outside":
		c.Place = connection.Outside
	case q.From == "node":
		c.Place = connection.OnNode
	default:
		c.Subject = subject(t, w, q.From)
	}
	return c
}

// situationsPage is the page that has the tables.
const situationsPage = "../../../docs/situations.md"

var update = flag.Bool("update", false, "write docs/situations.md")

// situationsIntro begins the page.
const situationsIntro = `# Broken situations

What [` + "`portolan explain`" + `](explain.md#all-layers-of-a-way) says first of each situation that the tests break a cluster into, by the layer of the first fault. A row with two faults has both sentences: the first one is the cause, and the second one is what would be next if it were mended. ` + "`not known`" + ` stands before a sentence that says what else has to be looked at.

The last column is what the client saw of that layer when the situation was built with packets: the real programs of Portolan, Pods as network namespaces, and ` + "`portolan explain --live`" + `, which agreed on every layer that it could compare, after all was well without the faults (` + "`make evidence-situations`" + `).

The cluster is [base.yaml](../internal/pod/app/testdata/situations/base.yaml), and the situations with the cures are in the tables beside it. A test explains each of them and generates this page (` + "`go test ./internal/pod/app -run Situations -update`" + `).
`

// TestSituationsPage verifies that docs/situations.md has the situations.
func TestSituationsPage(t *testing.T) {
	t.Parallel()
	want := situationsText(situations(t), seenLive(t))
	if *update {
		if err := os.WriteFile(situationsPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(situationsPage)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is out of date; run go test ./internal/pod/app -run Situations -update", situationsPage)
	}
}

// liveResults has what was seen of the first layer of each situation when all were built with packets last.
const liveResults = situationsDir + "/live/seen.yaml"

// seenLive reads what was seen of each situation.
func seenLive(t *testing.T) (seen map[string]string) {
	t.Helper()
	text, err := os.ReadFile(liveResults)
	if err == nil {
		err = yaml.Unmarshal(text, &seen)
	}
	if err != nil {
		t.Fatal(err)
	}
	return seen
}

// situationsText returns docs/situations.md.
func situationsText(all []situation, seen map[string]string) string {
	var b strings.Builder
	b.WriteString(situationsIntro)
	for _, l := range path.Layers() {
		fmt.Fprintf(&b, "\n## %s\n\n| situation | from | asks for | what is said | with packets |\n|---|---|---|---|---|\n", l)
		for i := range all {
			if s := &all[i]; s.First.Layer == l {
				fmt.Fprintf(&b, "| %s | %s | `%s` | %s | %s |\n", s.Name, s.From, s.asks(), s.says(), escaped.Replace(seen[s.Name]))
			}
		}
	}
	return b.String()
}

// asks returns what is asked for, as an argument and flags of the command.
func (q *question) asks() string {
	words := []string{q.To}
	for _, flag := range [][2]string{{"--type", q.Type}, {"--libc", q.Libc}, {"--method", q.Method}} {
		if flag[1] != "" {
			words = append(words, flag[0], flag[1])
		}
	}
	for _, h := range q.Headers {
		words = append(words, "--header '"+h+"'")
	}
	return strings.Join(words, " ")
}

// escaped escapes what Markdown would read.
var escaped = strings.NewReplacer("|", `\|`, "*", `\*`, "<", "&lt;", "_", `\_`)

// says returns the sentences about the faults.
func (s *situation) says() string {
	text := ""
	if s.First.State == path.NotKnown {
		text = "not known: "
	}
	text += escaped.Replace(s.First.Why)
	if s.Second != nil {
		text += fmt.Sprintf("<br>%s: %s", s.Second.Layer, escaped.Replace(s.Second.Why))
	}
	return text
}
