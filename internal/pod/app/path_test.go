package app

import (
	"strings"
	"testing"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/pod/lint"
	"portolan.dev/portolan/internal/pod/path"
)

// TestPathFollowsTheModel: what is kept of an explanation is not used once the model changed.
func TestPathFollowsTheModel(t *testing.T) {
	t.Parallel()
	c := config.Default()
	c.Manifests = "testdata/situations/base.yaml"
	w := newWorld(t, c)
	q := &question{From: "shop/client", To: "web:80"}
	outcome := func() string {
		t.Helper()
		e := explainedIn(t, w, q)
		return e.Outcome + "; " + string(e.State)
	}
	first := outcome()
	if again := outcome(); again != first {
		t.Errorf("the same explanation says %q, then %q", first, again)
	}
	if w.kept.walker == nil {
		t.Fatal("nothing is kept")
	}
	w.store.Update(func(tx *cluster.Tx) {
		for _, s := range tx.SlicesOf(cluster.Key{Namespace: "shop", Name: "web"}) {
			changed := *s
			changed.Endpoints = nil
			tx.Put(&changed)
		}
	})
	without := outcome()
	if without == first {
		t.Errorf("with endpoints and without, explanations say %q", first)
	}
}

// TestMissingTargetPort: that no container has a port of the targetPort's name is told once, and Pods that are ready are
// not called unready.
func TestMissingTargetPort(t *testing.T) {
	t.Parallel()
	c := config.Default()
	c.Manifests = "testdata/situations/base.yaml"
	w := newWorld(t, c)
	w.store.Update(func(tx *cluster.Tx) {
		key := cluster.Key{Namespace: "shop", Name: "web"}
		changed := *tx.Service(key)
		changed.Targets = []string{"main"}
		tx.Put(&changed)
		for _, s := range tx.SlicesOf(key) {
			without := *s
			without.Endpoints, without.Ports = nil, nil
			tx.Put(&without)
		}
	})
	for _, to := range []string{"web:80", "http://web/", "http://www.shop.example/"} {
		e := explainedIn(t, w, &question{From: "shop/client", To: to})
		var rules []string
		for _, s := range e.Steps {
			for _, d := range s.Diagnoses {
				if d.Rule == lint.ServiceTargetPortMissing || d.Rule == lint.ServiceNoReadyEndpoint {
					rules = append(rules, string(s.Layer)+" "+d.Rule)
				}
			}
		}
		if len(rules) != 1 || !strings.HasSuffix(rules[0], " "+lint.ServiceTargetPortMissing) {
			t.Errorf("%s: the layers have %q, want %s in one", to, rules, lint.ServiceTargetPortMissing)
		}
	}
}

// TestMissingPortName: a name that no port of the Service has breaks the layer of the Service, as a number does.
func TestMissingPortName(t *testing.T) {
	t.Parallel()
	c := config.Default()
	c.Manifests = "testdata/situations/base.yaml"
	w := newWorld(t, c)
	for _, q := range []question{
		{From: "shop/client", To: "web:foo"}, {From: "node", Node: "n1", To: "web.shop:foo"},
	} {
		e := explainedIn(t, w, &q)
		s := e.Step(path.Service)
		const says = "foo is not a port of Service shop/web (it has 80 http)"
		if s == nil || s.State != path.Broken || s.Says != says || e.Cause != path.Service || e.Exit() != 11 {
			t.Errorf("%s from %s: %q, exit status %d, %+v; want %q", q.To, q.From, e.Outcome, e.Exit(), s, says)
		}
	}
}

// TestURLOfService: a client that does not ask the cluster's DNS reaches the Service that the host of a URL names as it
// reaches that of NAME:PORT, unless a route has the host.
func TestURLOfService(t *testing.T) {
	t.Parallel()
	c := config.Default()
	c.Manifests = "testdata/situations/base.yaml"
	w := newWorld(t, c)
	for url, host := range map[string]string{
		"http://web.shop/":                          "web.shop:80",
		"http://web.shop.svc/":                      "web.shop:80",
		"http://web.shop.svc.cluster.local/healthz": "web.shop:80",
		"http://web.shop:81/":                       "web.shop:81",
	} {
		got := explainedIn(t, w, &question{From: "node", Node: "n1", To: url})
		want := explainedIn(t, w, &question{From: "node", Node: "n1", To: host})
		if got.Outcome != want.Outcome || got.State != want.State || got.Request != nil {
			t.Errorf("%s: %s, %s; %s: %s, %s", url, got.Outcome, got.State, host, want.Outcome, want.State)
		}
	}
	for _, url := range []string{"http://web.shop.example.org/", "http://nothing.shop/"} {
		if got := explainedIn(t, w, &question{From: "node", Node: "n1", To: url}); got.Request == nil {
			t.Errorf("%s: %s, without the gateway", url, got.Outcome)
		}
	}
}

// TestRedirectWithoutAddress: a redirect is an answer wherever the gateway is.
func TestRedirectWithoutAddress(t *testing.T) {
	t.Parallel()
	c := config.Default()
	c.Manifests = "../../../examples/gateway"
	w := newWorld(t, c)
	for _, from := range []string{"", "outside", "node", "198.51.100.7"} {
		told, err := w.Tell(t.Context(), Asked{Target: "http://www.shop.example/", From: from})
		if err != nil {
			t.Fatal(err)
		}
		const want = "301 from the gateway: redirect to http://shop.example/"
		if told.Exit() != 0 || told.Outcome != want {
			t.Errorf("from %q: exit %d, %q, want %q", from, told.Exit(), told.Outcome, want)
		}
	}
}
