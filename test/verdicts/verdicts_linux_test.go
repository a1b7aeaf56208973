package verdicts

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"go.yaml.in/yaml/v3"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	dnsapp "portolan.dev/portolan/internal/dns/app"
	"portolan.dev/portolan/internal/kube/source"
	podapp "portolan.dev/portolan/internal/pod/app"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/suite"
	"portolan.dev/portolan/test/world"
)

// settings are those of all programs, and of portolan test.
const settings = "gateway: {publish: {service: infra/gateway}}"

// test is a test of a suite.
type test struct {
	From      string            `yaml:"from"`
	To        string            `yaml:"to"`
	Method    string            `yaml:"method,omitempty"`
	Headers   map[string]string `yaml:"headers,omitempty"`
	assertion `yaml:",inline"`
	question  *question
	observed  *observed
}

// number returns a number of the environment, or else the usual one.
func number(t *testing.T, variable string, usual int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestVerdicts compares verdicts with packets: WORLDS random clusters from SEED on, with QUESTIONS each. With REPORT it
// writes what was compared into the table of docs/explain-evidence.md, if nothing differs.
func TestVerdicts(t *testing.T) {
	r := &report{seed: number(t, "SEED", 1), worlds: number(t, "WORLDS", 2), counts: make(map[string]map[string]int)}
	questions := number(t, "QUESTIONS", 150)
	for i := range r.worlds {
		t.Run(strconv.Itoa(r.seed+i), func(t *testing.T) { r.compare(t, uint64(r.seed+i), questions) })
	}
	t.Logf("%d assertions, %d of what the model does not know\n%s", r.total, r.unknown, r.table())
	if os.Getenv("REPORT") != "" && !t.Failed() {
		r.write(t)
	}
}

// compare compares verdicts with packets in the cluster of a seed.
func (r *report) compare(t *testing.T, seed uint64, questions int) {
	t.Helper()
	c := draw(t, seed)
	dir := t.TempDir()
	c.write(t, dir)
	names := map[string][]netip.Addr{"www.outside.example": {servers[0].Addr()}}
	for _, host := range c.hosts {
		names[host] = []netip.Addr{gatewayAddr}
	}
	w := world.New(t, world.Options{Manifests: dir, Settings: settings, Names: names, Servers: servers})
	tests := c.observeAll(t, w, questions)
	results := judge(t, w, tests)
	for i := range results {
		judged, x := &results[i], &tests[i]
		if judged.Passed() != x.holds && judged.Got != "not known" {
			x.observeAgain(t)
		}
		switch {
		case x.observed.depends:
		case judged.Passed() == x.holds:
			r.count(x)
		case judged.Got == "not known":
			r.unknown++
			t.Logf("%s → %s: not known, and %s: %s", x.From, x.To, x.observed, judged.Why)
		default:
			t.Errorf("%s → %s %s %v: expect %v: by packets %t, by the model %t\n  observed %s\n  judged %s: %s", x.From, x.To,
				x.Method, x.Headers, x.Expect, x.holds, judged.Passed(), x.observed, judged.Got, judged.Why)
		}
	}
	if keep := os.Getenv("KEEP"); t.Failed() && keep != "" {
		if err := os.CopyFS(filepath.Join(keep, strconv.FormatUint(seed, 10)), os.DirFS(dir)); err != nil {
			t.Log(err)
		}
	}
}

// observeAgain observes a question again, with nothing else going on: a machine under load is late with answers, and
// an endpoint may not have had its turn.
func (x *test) observeAgain(t *testing.T) {
	t.Helper()
	q := *x.question
	if q.tries > 1 {
		q.tries *= 2
	}
	again, err := q.observe(t.Context())
	if err != nil {
		t.Error(err)
		return
	}
	t.Logf("%s → %s: again %s", x.From, x.To, again)
	x.observed = again
	x.holds = x.Expect.holds(again)
}

// atOnce is how many questions are sent at once.
const atOnce = 24

// observeAll draws questions, and sends them.
func (c *randomCluster) observeAll(t *testing.T, w *world.World, n int) (tests []test) {
	t.Helper()
	all := make([]question, n)
	seen := make([]*observed, n)
	room := make(chan struct{}, atOnce)
	var sending sync.WaitGroup
	for i := range all {
		all[i] = c.ask(w)
	}
	for i := range all {
		room <- struct{}{}
		sending.Go(func() {
			defer func() { <-room }()
			var err error
			if seen[i], err = all[i].observe(t.Context()); err != nil {
				t.Errorf("%s → %s: %v", all[i].from, all[i].to, err)
			}
		})
	}
	sending.Wait()
	if t.Failed() {
		t.FailNow()
	}
	for i := range all {
		q := &all[i]
		for _, a := range c.assertions(q, seen[i]) {
			x := test{From: q.from, To: q.to, assertion: a, question: q, observed: seen[i]}
			if q.request != nil {
				x.Method, x.Headers = q.request.Method, make(map[string]string)
				for name := range q.request.Header {
					x.Headers[name] = q.request.Header.Get(name)
				}
			}
			tests = append(tests, x)
		}
	}
	return tests
}

// judge has the assertions judged as portolan test does.
func judge(t *testing.T, w *world.World, tests []test) []suite.Result {
	t.Helper()
	text, err := yaml.Marshal(map[string]any{"tests": tests})
	if err != nil {
		t.Fatal(err)
	}
	s, err := suite.Read("suite.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	node, _ := dnsconfig.ParseNode(world.NodeResolvConf)
	results, err := inspector(t, w.Settings).Test(t.Context(), s, podapp.NodeSettings{ResolvConf: &node})
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != len(tests) {
		t.Fatalf("%d results of %d assertions:\n%s", len(results), len(tests), bytes.TrimSpace(text))
	}
	return results
}

// inspector reads the manifests as commands do.
func inspector(t *testing.T, c config.Config) *podapp.Inspector {
	t.Helper()
	store, log := cluster.NewStore(), slog.New(slog.DiscardHandler)
	served := c
	served.DNS.Forward.Routes = nil // the model answers, and forwards nothing
	dns, err := dnsapp.New(dnsapp.Config{Settings: served, Store: store, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	src, err := source.New(source.Config{Settings: c, Scope: source.Whole, Store: store, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := src.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range loaded.Problems {
		t.Error(fmt.Sprint("the manifests: ", p))
	}
	dns.Compile()
	i, err := podapp.New(c, store, dns.Responder())
	if err != nil {
		t.Fatal(err)
	}
	i.Loaded(loaded)
	return i
}
