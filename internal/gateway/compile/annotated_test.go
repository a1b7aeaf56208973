package compile

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/annotation"
	"portolan.dev/portolan/internal/gateway/table"
)

// annotatedIngress returns an Ingress of the host x.test, whose backend is a Service with its name. Paths are text and
// type.
func annotatedIngress(name string, annotations map[string]string, paths ...string) *cluster.Frontend {
	all := make(map[string]string)
	for name, value := range annotations {
		all[annotation.Prefix+name] = value
	}
	rule := cluster.IngressRule{Host: "x.test"}
	for i := 0; i < len(paths); i += 2 {
		rule.Paths = append(rule.Paths, cluster.IngressPath{
			Path: paths[i], Type: cluster.PathType(paths[i+1]),
			Backend: cluster.IngressBackend{Backend: cluster.Backend{Service: name, Number: 80}},
		})
	}
	return &cluster.Frontend{
		Kind: cluster.KindIngress, Key: cluster.Key{Namespace: "a", Name: name},
		Ingress: &cluster.IngressSpec{Class: "ours", Rules: []cluster.IngressRule{rule}, Annotations: all},
	}
}

// withDefault adds a default backend, and withoutRules takes the rules away.
func withDefault(f *cluster.Frontend) *cluster.Frontend {
	f.Ingress.Default = &cluster.IngressBackend{Backend: cluster.Backend{Service: f.Name, Number: 80}}
	return f
}

func withoutRules(f *cluster.Frontend) *cluster.Frontend {
	f.Ingress.Rules = nil
	return f
}

// outcome is what becomes of a request for a path, in a line.
func outcome(t *table.Table, host, path string, header map[string][]string) string {
	_, route := t.Port(table.Socket{Port: 80}).Find(host, &table.Request{Method: "GET", Path: path, Header: header})
	if route == nil {
		return "404"
	}
	rule, parts := route.Rule, []string(nil)
	if rule.Status != 0 {
		return strconv.Itoa(rule.Status)
	}
	if rule.Secure != nil {
		parts = append(parts, "https")
	}
	if rule.Redirect != nil {
		from := &table.Target{Scheme: "http", Host: host, Port: 80, Path: path, Query: "q"}
		return strings.Join(append(parts, fmt.Sprint(rule.Redirect.Status, " ", rule.Redirect.Location(from, &route.Match))), " ")
	}
	for _, b := range rule.Backends {
		parts = append(parts, fmt.Sprintf("%s*%d", b.Upstream.Service, b.Weight))
	}
	if rule.Rewrite != nil {
		parts = append(parts, rule.Rewrite.Host+rule.Rewrite.Path.Apply(path, &route.Match))
	}
	return strings.Join(parts, " ")
}

// TestAnnotated: Ingresses are served as ingress-nginx serves them.
func TestAnnotated(t *testing.T) {
	t.Parallel()
	const prefix, exact, specific = "Prefix", "Exact", "ImplementationSpecific"
	type annotations = map[string]string
	withTLS := func(f *cluster.Frontend) *cluster.Frontend {
		f.Ingress.TLS = []cluster.IngressTLS{{Hosts: []string{"x.test"}, Secret: "c"}}
		return f
	}
	canary := func(more annotations) []*cluster.Frontend {
		more["canary"] = "true"
		return []*cluster.Frontend{annotatedIngress("a", nil, "/", prefix), annotatedIngress("b", more, "/", prefix)}
	}
	guarded := func(path, kind string) []*cluster.Frontend { // beside what is open
		return []*cluster.Frontend{
			annotatedIngress("a", nil, "/", prefix), annotatedIngress("b", annotations{"whitelist-source-range": "x"}, path, kind),
		}
	}
	header := func(name, value string) map[string][]string { return map[string][]string{name: {value}} }
	for claim, test := range map[string]struct {
		of         []*cluster.Frontend
		host, path string // x.test by default
		header     map[string][]string
		want       string
	}{
		"prefixes are of elements":    {of: []*cluster.Frontend{annotatedIngress("a", nil, "/foo", prefix)}, path: "/foobar", want: "404"},
		"unless they are of no type":  {of: []*cluster.Frontend{annotatedIngress("a", nil, "/foo", specific)}, path: "/foobar", want: "a*1"},
		"a longer prefix comes first": {of: []*cluster.Frontend{annotatedIngress("a", nil, "/foo", specific), annotatedIngress("b", nil, "/foo/bar", prefix)}, path: "/foo/bar", want: "b*1"},
		"expressions have no case": {
			of:   []*cluster.Frontend{annotatedIngress("a", nil, "/Foo", exact), annotatedIngress("b", annotations{"use-regex": "true"}, "/x", prefix)},
			path: "/fOObar", want: "a*1",
		},
		"without them paths have": {of: []*cluster.Frontend{annotatedIngress("a", nil, "/Foo", prefix)}, path: "/foo", want: "404"},
		"groups": {
			of:   []*cluster.Frontend{annotatedIngress("a", annotations{"rewrite-target": "/v2/$2"}, "/old(/|$)(.*)", specific)},
			path: "/old/x/y", want: "a*1 /v2/x/y",
		},
		"groups that match nothing": {
			of:   []*cluster.Frontend{annotatedIngress("a", annotations{"rewrite-target": "/$2"}, "/old(/|$)(.*)", specific)},
			path: "/old", want: "a*1 /",
		},
		"a rewritten path leaves no directory": {
			of:   []*cluster.Frontend{annotatedIngress("a", annotations{"rewrite-target": "/in/.$1"}, "/o(.*)", specific)},
			path: "/o./x", want: "a*1 /x",
		},
		"redirects to HTTPS": {of: []*cluster.Frontend{withTLS(annotatedIngress("a", nil, "/", prefix))}, path: "/", want: "https a*1"},
		"a host with TLS by another Ingress": {
			of: []*cluster.Frontend{
				withTLS(annotatedIngress("a", nil, "/", prefix)), annotatedIngress("b", nil, "/b", prefix),
			}, path: "/b", want: "https b*1",
		},
		"no redirects to HTTPS": {
			of: []*cluster.Frontend{withTLS(annotatedIngress("a", annotations{"ssl-redirect": "false"}, "/", prefix))}, path: "/", want: "a*1",
		},
		"app-root": {
			of:   []*cluster.Frontend{annotatedIngress("a", annotations{"app-root": "/app"}, "/", prefix)},
			path: "/", want: "302 http://x.test/app",
		},
		"several slashes are one":    {of: guarded("/b", prefix), path: "//b/", want: "503"},
		"an encoded slash":           {of: guarded("/b/c", exact), path: "/b%2Fc", want: "503"},
		"dots after encoded slashes": {of: guarded("/b", specific), path: "/a%2F..%2Fbc", want: "503"},
		"an encoded character":       {of: guarded("/b;c", prefix), path: "/b%3Bc", want: "503"},
		"a path that is encoded":     {of: guarded("/b%20c", prefix), path: "/b%20c", want: "503"},
		"encoded for an expression": {
			of:   append(guarded("/b/[a-z]+$", specific), annotatedIngress("c", annotations{"use-regex": "true"}, "/c", prefix)),
			path: "/b%2Fc", want: "503",
		},
		"an end of a line for an expression": {
			of:   append(guarded("/b/.*$", specific), annotatedIngress("c", annotations{"use-regex": "true"}, "/c", prefix)),
			path: "/b/%0Ac", want: "503",
		},
		"groups are encoded": {
			of:   []*cluster.Frontend{annotatedIngress("a", annotations{"rewrite-target": "/v2/$2"}, "/old(/|$)(.*)", specific)},
			path: "/x%2F..%2Fold%2Fa%2F..%2F..%2Fold/b%20%2525", want: "a*1 /v2/b%20%2525",
		},
		"a permanent redirect": {
			of:   []*cluster.Frontend{annotatedIngress("a", annotations{"permanent-redirect": "https://y.test/?a=b"}, "/", prefix)},
			path: "/", want: "301 https://y.test/?a=b",
		},
		"an alias": {
			of: []*cluster.Frontend{
				annotatedIngress("a", annotations{"server-alias": "y.test"}, "/", prefix), annotatedIngress("b", nil, "/b", prefix),
			}, host: "y.test", path: "/b", want: "b*1",
		},
		"from www": {
			of:   []*cluster.Frontend{annotatedIngress("a", annotations{"from-to-www-redirect": "true"}, "/", prefix)},
			host: "www.x.test", path: "/b", want: "308 http://x.test/b?q",
		},
		"a weight":              {of: canary(annotations{"canary-weight": "30"}), path: "/", want: "a*70 b*30"},
		"a header":              {of: canary(annotations{"canary-by-header": "x-c"}), path: "/", header: header("X-C", "always"), want: "b*1"},
		"a header that says no": {of: canary(annotations{"canary-by-header": "x-c", "canary-weight": "100"}), path: "/", header: header("X-C", "never"), want: "a*1"},
		"another header":        {of: canary(annotations{"canary-by-header": "x-c", "canary-weight": "100"}), path: "/", header: header("X-C", "q"), want: "a*0 b*100"},
		"a pattern":             {of: canary(annotations{"canary-by-header": "x-c", "canary-by-header-pattern": "b+"}), path: "/", header: header("X-C", "abbc"), want: "b*1"},
		"a cookie":              {of: canary(annotations{"canary-by-cookie": "c"}), path: "/", header: header("Cookie", "a=b; c=always; d=e"), want: "b*1"},
		"a session keeps its backend, whatever the header says": {
			of: []*cluster.Frontend{
				annotatedIngress("a", annotations{"affinity": "cookie"}, "/", prefix),
				annotatedIngress("b", annotations{"canary": "true", "canary-by-header": "x-c"}, "/", prefix),
			}, path: "/", header: header("X-C", "always"), want: "b*1 a*0",
		},
		"a session keeps the canary without a weight": {
			of: []*cluster.Frontend{
				annotatedIngress("a", annotations{"affinity": "cookie"}, "/", prefix),
				annotatedIngress("b", annotations{"canary": "true", "canary-by-header": "x-c"}, "/", prefix),
			}, path: "/", want: "a*1 b*0",
		},
		"a cookie of another name": {of: canary(annotations{"canary-by-cookie": "c"}), path: "/", header: header("Cookie", "cc=always"), want: "a*1"},
		"an invalid range closes": {
			of:   []*cluster.Frontend{annotatedIngress("a", annotations{"whitelist-source-range": "x"}, "/", prefix)},
			path: "/", want: "503",
		},
		"client certificates close all of the host": {
			of: []*cluster.Frontend{
				annotatedIngress("a", nil, "/", prefix), annotatedIngress("b", annotations{"auth-tls-secret": "a/ca"}, "/b", prefix),
			}, path: "/", want: "503",
		},
		"client certificates close what has no path": {
			of:   []*cluster.Frontend{annotatedIngress("b", annotations{"auth-tls-secret": "a/ca", "app-root": "/b"}, "/b", prefix)},
			path: "/", want: "503",
		},
		"client certificates close aliases": {
			of: []*cluster.Frontend{
				annotatedIngress("a", annotations{"server-alias": "y.test"}, "/", prefix), annotatedIngress("b", annotations{"auth-tls-secret": "a/ca"}, "/b", prefix),
			}, host: "y.test", path: "/", want: "503",
		},
		"client certificates of a canary close": {
			of: []*cluster.Frontend{
				annotatedIngress("a", nil, "/", prefix), annotatedIngress("b", annotations{"canary": "true", "auth-tls-secret": "a/ca"}, "/", prefix),
			}, path: "/", want: "503",
		},
		"what closes a path leaves others open": {
			of: []*cluster.Frontend{
				annotatedIngress("a", nil, "/", prefix), annotatedIngress("b", annotations{"whitelist-source-range": "x"}, "/b", prefix),
			}, path: "/", want: "a*1",
		},
		"an expression that RE2 does not know closes what it may match": {
			of: []*cluster.Frontend{
				annotatedIngress("a", nil, "/in/(?!open)secret", prefix), annotatedIngress("b", annotations{"use-regex": "true"}, "/", prefix),
			}, path: "/In/secret", want: "503",
		},
		"an expression that RE2 does not know closes nothing else": {
			of: []*cluster.Frontend{
				annotatedIngress("a", nil, "/in/(?!open)secret", prefix), annotatedIngress("b", annotations{"use-regex": "true"}, "/", prefix),
			}, path: "/out", want: "b*1",
		},
		"an expression that RE2 does not know closes at an optional letter that is not ASCII": {
			of: []*cluster.Frontend{annotatedIngress("a", annotations{"use-regex": "true"}, "/caf\u00e9?(?=/)", specific, "/", prefix)}, path: "/caf/", want: "503",
		},
		"an expression that is not UTF-8 closes what it may match": {
			of: []*cluster.Frontend{annotatedIngress("a", annotations{"use-regex": "true"}, "/\xff", specific, "/", prefix)}, path: "/\xff", want: "503",
		},
		"a path that is not UTF-8 is text": {
			of: []*cluster.Frontend{annotatedIngress("a", nil, "/\xff\xfe", specific)}, path: "/\xff\xfea", want: "a*1",
		},
		"a path that is not UTF-8 when it is decoded is text": {
			of: []*cluster.Frontend{annotatedIngress("a", nil, "/%ff", specific)}, path: "/%FFa", want: "a*1",
		},
		"it closes, too, of the Ingress that has expressions": {
			of:   []*cluster.Frontend{annotatedIngress("a", annotations{"use-regex": "true"}, "/in/(?=b)", specific, "/", prefix)},
			path: "/in/b", want: "503",
		},
		"longer paths come before what is closed": {
			of:   []*cluster.Frontend{annotatedIngress("a", annotations{"use-regex": "true"}, "/in/(?=b)", specific, "/in/public/.*", specific)},
			path: "/in/public/x", want: "a*1",
		},
		"without expressions it is text": {of: []*cluster.Frontend{annotatedIngress("a", nil, "/in/(?!b)", prefix)}, path: "/in/(?!b)", want: "a*1"},
		"a default backend is restricted": {
			of:   []*cluster.Frontend{withDefault(annotatedIngress("a", annotations{"whitelist-source-range": "x"}, "/b", prefix))},
			path: "/", want: "503",
		},
		"a default backend without a host is restricted": {
			of:   []*cluster.Frontend{withDefault(annotatedIngress("a", annotations{"whitelist-source-range": "x"}, "/b", prefix))},
			host: "other.test", path: "/", want: "503",
		},
		"a default backend without rules is restricted": {
			of:   []*cluster.Frontend{withoutRules(withDefault(annotatedIngress("a", annotations{"whitelist-source-range": "x"})))},
			path: "/", want: "503",
		},
		"a default backend without rules never redirects": {
			of:   []*cluster.Frontend{withoutRules(withDefault(annotatedIngress("a", annotations{"permanent-redirect": "https://y.test/"})))},
			path: "/", want: "a*1",
		},
		"a Secret that is not there closes": {
			of:   []*cluster.Frontend{annotatedIngress("a", annotations{"auth-type": "basic", "auth-secret": "users"}, "/", prefix)},
			path: "/", want: "503",
		},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			store := newStore(newWorld(1).classes()...)
			store.Update(func(tx *cluster.Tx) {
				for _, f := range test.of {
					tx.Put(f)
					tx.Put(&cluster.Service{
						Key: f.Key, Ports: []cluster.Port{{Number: 80, Protocol: cluster.TCP}},
					})
				}
			})
			cfg := testConfig
			cfg.Annotated = true
			var made Output
			store.View(func(v *cluster.View) { made = NewCompiler(cfg).Apply(v, &cluster.Changes{Everything: true}) })
			host := test.host
			if host == "" {
				host = "x.test"
			}
			if got := outcome(made.Table, host, test.path, test.header); got != test.want {
				t.Errorf("%s %s %v: %s, want %s", host, test.path, test.header, got, test.want)
			}
		})
	}
}

// TestUnannotated: without the setting annotations have no effect.
func TestUnannotated(t *testing.T) {
	t.Parallel()
	store := newStore(newWorld(1).classes()...)
	store.Update(func(tx *cluster.Tx) {
		tx.Put(annotatedIngress("a", map[string]string{"permanent-redirect": "https://y.test/"}, "/", "Prefix"))
	})
	_, made := compileAll(store)
	if got := outcome(made.Table, "x.test", "/", nil); got != "503" {
		t.Errorf("x.test /: %s, want 503, as there is no Service", got)
	}
}

// TestHostProblems: an Ingress has a problem that comes of another one of its host, as long as it does.
func TestHostProblems(t *testing.T) {
	t.Parallel()
	other := func(name, value string) func(*cluster.Tx) {
		return func(tx *cluster.Tx) {
			tx.Put(annotatedIngress("b", map[string]string{name: value}, "/b", "Prefix"))
		}
	}
	store := newStore(newWorld(1).classes()...)
	store.Update(func(tx *cluster.Tx) {
		tx.Put(annotatedIngress("a", nil, "/a(?!b)", "Prefix"))
		tx.Put(&cluster.Service{
			Key: cluster.Key{Namespace: "a", Name: "a"}, Ports: []cluster.Port{{Number: 80, Protocol: cluster.TCP}},
		})
	})
	feed := store.Subscribe()
	cfg := testConfig
	cfg.Annotated = true
	c := NewCompiler(cfg)
	store.View(func(v *cluster.View) { c.Apply(v, &cluster.Changes{Everything: true}) })
	feed.Pending()
	of := cluster.Ref{Kind: cluster.KindIngress, Key: cluster.Key{Namespace: "a", Name: "a"}}
	for _, step := range []struct {
		do   func(*cluster.Tx)
		want []Problem
	}{
		{other("auth-tls-secret", "a/ca"), []Problem{{
			"spec.rules[0].host", "auth-tls-secret of Ingress a/b is not supported: no request is served",
		}}},
		{other("use-regex", "true"), []Problem{{
			"spec.rules[0].http.paths[0].path",
			"/a(?!b) is not a regular expression of RE2: no request with a path that begins with /a is served",
		}}},
		{func(tx *cluster.Tx) { tx.Delete(cluster.KindIngress, cluster.Key{Namespace: "a", Name: "b"}) }, nil},
	} {
		store.Update(step.do)
		changes := feed.Pending()
		var made Output
		store.View(func(v *cluster.View) { made = c.Apply(v, &changes) })
		if _, changed := made.Changed[of]; !changed {
			t.Errorf("Apply: Ingress a/a is not among %v, whose verdicts changed", made.Changed)
		}
		if verdict, _ := c.Ingress(of.Key); !slices.Equal(verdict.Problems, step.want) {
			t.Errorf("Ingress(a/a): problems %v, want %v", verdict.Problems, step.want)
		}
	}
}

// TestAnnotatedRetry: requests are sent again as nginx does.
func TestAnnotatedRetry(t *testing.T) {
	t.Parallel()
	type annotations = map[string]string
	for claim, test := range map[string]struct {
		of   annotations
		want *table.Retry
	}{
		"without annotations as the gateway does": {nil, nil},
		"off": {annotations{"proxy-next-upstream": "off"}, &table.Retry{CodesOnly: true, Idempotent: true}},
		"off, whatever else": {
			annotations{"proxy-next-upstream": "error off http_502"}, &table.Retry{CodesOnly: true, Idempotent: true},
		},
		"a code alone": {
			annotations{"proxy-next-upstream": "http_502"},
			&table.Retry{Codes: []int{502}, CodesOnly: true, Idempotent: true, Attempts: 2},
		},
		"methods that are not idempotent": {
			annotations{"proxy-next-upstream": "error http_503 non_idempotent"}, &table.Retry{Codes: []int{503}, Attempts: 2},
		},
		"one try": {annotations{"proxy-next-upstream-tries": "1"}, &table.Retry{Idempotent: true}},
		"more tries, of the conditions by default": {
			annotations{"proxy-next-upstream-tries": "5"}, &table.Retry{Idempotent: true, Attempts: 4},
		},
		"any number of tries": {
			annotations{"proxy-next-upstream-tries": "0"}, &table.Retry{Idempotent: true, Attempts: maxRetries},
		},
		"a time": {
			annotations{"proxy-next-upstream-timeout": "10"},
			&table.Retry{Idempotent: true, Attempts: 2, Within: 10 * time.Second},
		},
		"no time": {annotations{"proxy-next-upstream-timeout": "0"}, nil},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			f := annotatedIngress("a", test.of, "/", "Prefix")
			settings, _ := annotation.Parse(f.Ingress.Annotations)
			a := &annotated{Ingress: &annotation.Ingress{Key: f.Key, Spec: f.Ingress, Settings: settings}}
			if diff := cmp.Diff(test.want, a.retry()); diff != "" {
				t.Errorf("retry of %v (-want +got):\n%s", test.of, diff)
			}
		})
	}
}

// TestAnnotatedPasswords reads users of a Secret in both forms. Another namespace closes, as ingress-nginx does unless
// it has allow-cross-namespace-resources.
func TestAnnotatedPasswords(t *testing.T) {
	t.Parallel()
	const hash = "{SHA}qUqP5cyxm6YcTAhz05Hph5gvu9M="
	type annotations = map[string]string
	for claim, test := range map[string]struct {
		of      annotations
		users   map[string]string
		problem string
	}{
		"a file": {annotations{"auth-secret": "file"}, map[string]string{"ann": hash}, ""},
		"keys":   {annotations{"auth-secret": "keys", "auth-secret-type": "auth-map"}, map[string]string{"ann": hash, "bob": hash}, ""},
		"with its namespace": {
			annotations{"auth-secret": "a/keys", "auth-secret-type": "auth-map"}, map[string]string{"ann": hash, "bob": hash}, "",
		},
		"another namespace": {annotations{"auth-secret": "b/file"}, nil, "is in another namespace: no request is served"},
		"keys as a file":    {annotations{"auth-secret": "keys"}, nil, "Secret a/keys has no user that can log in: no request is served"},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			store := newStore(newWorld(1).classes()...)
			test.of["auth-type"] = "basic"
			store.Update(func(tx *cluster.Tx) {
				tx.Put(annotatedIngress("a", test.of, "/", "Prefix"))
				tx.Put(&cluster.Service{
					Key: cluster.Key{Namespace: "a", Name: "a"}, Ports: []cluster.Port{{Number: 80, Protocol: cluster.TCP}},
				})
				for _, namespace := range []string{"a", "b"} {
					tx.Put(&cluster.Secret{
						Key: cluster.Key{Namespace: namespace, Name: "file"}, Data: map[string]cluster.Confidential{"auth": cluster.Confidential("ann:" + hash + "\n")},
					})
				}
				tx.Put(&cluster.Secret{
					Key: cluster.Key{Namespace: "a", Name: "keys"}, Data: map[string]cluster.Confidential{
						"ann": cluster.Confidential(hash + "\n"), "bob": cluster.Confidential(hash),
					},
				})
			})
			cfg := testConfig
			cfg.Annotated = true
			c := NewCompiler(cfg)
			var made Output
			store.View(func(v *cluster.View) { made = c.Apply(v, &cluster.Changes{Everything: true}) })
			_, route := made.Table.Port(table.Socket{Port: 80}).Find("x.test", &table.Request{Method: "GET", Path: "/"})
			verdict, _ := c.Ingress(cluster.Key{Namespace: "a", Name: "a"})
			if test.problem != "" {
				if route.Rule.Status != 503 || len(verdict.Problems) != 1 || verdict.Problems[0].Reason != test.problem {
					t.Errorf("%v: status %d, problems %v, want 503 and %q", test.of, route.Rule.Status, verdict.Problems, test.problem)
				}
				return
			}
			if g := route.Rule.Guard; g == nil || g.BasicAuth == nil || !maps.Equal(g.BasicAuth.Users, test.users) {
				t.Errorf("%v: guard %+v, problems %v, want users %v", test.of, g, verdict.Problems, test.users)
			}
		})
	}
}

// TestAnnotatedTimeouts: a time for connections is obeyed, and what is not is told.
func TestAnnotatedTimeouts(t *testing.T) {
	t.Parallel()
	type annotations = map[string]string
	for claim, test := range map[string]struct {
		of       annotations
		connect  time.Duration
		problems []string // their annotations
	}{
		"connections": {annotations{"proxy-connect-timeout": "7"}, 7 * time.Second, nil},
		"connections of gRPC": {
			annotations{"proxy-connect-timeout": "7", "backend-protocol": "GRPC"}, 7 * time.Second, []string{"proxy-connect-timeout"},
		},
		"reading and sending": {
			annotations{"proxy-read-timeout": "600", "proxy-send-timeout": "600"}, 0, []string{"proxy-read-timeout", "proxy-send-timeout"},
		},
		"many tries":           {annotations{"proxy-next-upstream-tries": "12"}, 0, []string{"proxy-next-upstream-tries"}},
		"as many as there are": {annotations{"proxy-next-upstream-tries": "11"}, 0, nil},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			store := newStore(newWorld(1).classes()...)
			f := annotatedIngress("a", test.of, "/", "Prefix")
			store.Update(func(tx *cluster.Tx) {
				tx.Put(f)
				tx.Put(&cluster.Service{Key: f.Key, Ports: []cluster.Port{{Number: 80, Protocol: cluster.TCP}}})
			})
			cfg := testConfig
			cfg.Annotated = true
			c := NewCompiler(cfg)
			var made Output
			store.View(func(v *cluster.View) { made = c.Apply(v, &cluster.Changes{Everything: true}) })
			_, route := made.Table.Port(table.Socket{Port: 80}).Find("x.test", &table.Request{Method: "GET", Path: "/"})
			if route.Rule.Connect != test.connect {
				t.Errorf("%v: connections have %v, want %v", test.of, route.Rule.Connect, test.connect)
			}
			verdict, _ := c.Ingress(f.Key)
			var fields []string
			for _, p := range verdict.Problems {
				name, _ := strings.CutPrefix(p.Field, "metadata.annotations["+annotation.Prefix)
				fields = append(fields, strings.TrimSuffix(name, "]"))
			}
			if !slices.Equal(fields, test.problems) {
				t.Errorf("%v: problems of %v, want %v", test.of, fields, test.problems)
			}
		})
	}
}
