package api

import (
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/apitest"
)

// TestNewFails checks that the error is one line with the reason and the file.
func TestNewFails(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const users = "contexts: [{name: test, context: {cluster: test, user: test}}]\nusers: [{name: test, user: {}}]\ncurrent-context: test\n"
	const head = "apiVersion: v1\nkind: Config\n"
	for claim, test := range map[string]struct {
		kubeconfig, selector string
		want                 []string
	}{
		"a file that is not there": {kubeconfig: filepath.Join(dir, "missing"), want: []string{"missing: no such file"}},
		"a directory":              {kubeconfig: dir, want: []string{dir, "is a directory"}},
		"an empty file":            {kubeconfig: file("empty", ""), want: []string{"empty", "server"}},
		"no YAML":                  {kubeconfig: file("no-yaml", "{"), want: []string{"no-yaml", "yaml"}},
		"no server":                {kubeconfig: file("no-server", head+"clusters: [{name: test, cluster: {}}]\n"+users), want: []string{"no-server", "server"}},
		"no cluster":               {kubeconfig: file("no-cluster", head+users), want: []string{"no-cluster", "server"}},
		"no current context": {kubeconfig: file("no-context", head+"clusters: [{name: test, cluster: {server: 'http://127.0.0.1:1'}}]\n"),
			want: []string{"no-context", "current-context"}},
		"a context that is not there": {kubeconfig: file("no-such", head+"current-context: prod\n"), want: []string{"no-such: ", "prod"}},
		"no Pod and no kubeconfig":    {want: []string{"no cluster to read", "--kubeconfig FILE"}},
		"a selector that is none":     {kubeconfig: file("no-yaml", "{"), selector: "a in", want: []string{`"a in"`}},
	} {
		_, err := New(Config{Kubeconfig: test.kubeconfig, ServiceSelector: test.selector, Store: cluster.NewStore(), Log: slog.New(slog.DiscardHandler)})
		if err == nil || strings.Contains(err.Error(), "\n") ||
			slices.ContainsFunc(test.want, func(part string) bool { return !strings.Contains(err.Error(), part) }) {
			t.Errorf("%s: New = %v, want one line with %q", claim, err, test.want)
		}
	}
}

// TestAccountNamespace checks that in a Pod, the default namespace is that of its service
// account.
func TestAccountNamespace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if got := accountNamespace(dir); got != "" {
		t.Errorf("accountNamespace without an account = %q, want none", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "namespace"), []byte("shop\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := accountNamespace(dir); got != "shop" {
		t.Errorf("accountNamespace = %q, want shop", got)
	}
}

// TestKubeconfigChanges checks that a change of the kubeconfig file switches to the new
// API server.
func TestKubeconfigChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.api.Put(service("old", "10.0.0.1"))
	w.live()
	now := apitest.New(t)
	for range 10 { // its versions are ahead
		now.Put(service("new", "10.0.0.2"))
	}
	now.Forget()
	w.api.Stop()
	apitest.WriteKubeconfig(t, w.cfg.Kubeconfig, now.URL())
	w.awaitModel("moving", "Namespace default", "Service shop/new [10.0.0.2]")
	w.awaitHealthy()
}

// TestKubeconfigBreaks checks that an invalid kubeconfig file is reported as the problem
// while it is invalid.
func TestKubeconfigBreaks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.live()
	if err := os.Remove(w.cfg.Kubeconfig); err != nil {
		t.Fatal(err)
	}
	w.api.Misbehave(apitest.Fault{Status: http.StatusUnauthorized})
	w.api.Cut()
	w.await("a problem", func() bool {
		p := w.status(cluster.KindPod).Problem
		return p != nil && strings.Contains(p.Error(), w.cfg.Kubeconfig)
	})
	apitest.WriteKubeconfig(t, w.cfg.Kubeconfig, w.api.URL())
	w.api.Misbehave(apitest.Fault{})
	w.awaitHealthy()
}

// TestRateLimits checks that lists and watches wait for the rate limiter.
func TestRateLimits(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		qps   float32
		burst int
		least time.Duration // from the start to the fourth request
		most  time.Duration
	}{
		"one a second":         {1, 1, 3 * time.Second, patience},
		"one a second, but 3":  {1, 3, time.Second, 2900 * time.Millisecond},
		"one a second, but 10": {1, 10, 0, 2900 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.cfg.QPS, w.cfg.Burst = test.qps, test.burst
			w.cfg.Kinds = without(kindsOfNames(), cluster.KindPod)
			w.api.Misbehave(apitest.Fault{NoWatchList: true}) // three watches are refused, then come lists
			began := time.Now()
			w.start()
			w.await("four requests", func() bool { return len(w.api.Requests()) >= 4 })
			if got := w.api.Requests()[3].At.Sub(began); got < test.least || got > test.most {
				t.Errorf("the fourth request came after %s, want from %s to %s", got, test.least, test.most)
			}
		})
	}
}

// TestRunEnds checks that Run returns when its context is canceled, in any state, and
// leaks nothing. It counts goroutines, and so is not parallel.
func TestRunEnds(t *testing.T) {
	for name, test := range map[string]struct {
		fault   apitest.Fault
		stopped bool // the server
		until   func(w *world)
	}{
		"while it watches": {until: func(w *world) { w.awaitFreshness(cluster.Live, w.kinds()...) }},
		"while lists come": {fault: apitest.Fault{Silent: true}, until: func(w *world) { w.awaitRequests("pods", 0, 1) }},
		"unanswered":       {fault: apitest.Fault{Slow: time.Hour}, until: func(w *world) { w.awaitRequests("pods", 0, 1) }},
		"between attempts": {fault: apitest.Fault{Status: http.StatusTooManyRequests}, until: func(w *world) { w.awaitRequests("pods", 0, 5) }},
		"without a server": {stopped: true, until: func(w *world) {
			w.await("several attempts", func() bool { return w.status(cluster.KindPod).Staleness > 2300*time.Millisecond })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			before := runtime.NumGoroutine()
			w := newWorld(t)
			w.remember()
			w.api.Misbehave(test.fault)
			if test.stopped {
				w.api.Stop()
			}
			w.start()
			test.until(w)
			told := time.Now()
			w.end()
			// Pauses between attempts are longer by now.
			if took := time.Since(told); took > time.Second {
				t.Errorf("Run took %s to end", took)
			}
			w.api.Stop()
			http.DefaultTransport.(*http.Transport).CloseIdleConnections()
			w.await("goroutines end", func() bool { return runtime.NumGoroutine() <= before })
			if len(w.log.lines("context canceled")) > 0 {
				t.Errorf("the end is logged as a failure:\n%s", w.log)
			}
		})
	}
}
