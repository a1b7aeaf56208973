package compile

import (
	"crypto/tls"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/table"
)

// secretOf returns a Secret with the n-th key pair of the tests; with a negative n, one without any.
func secretOf(namespace, name string, n int) *cluster.Secret {
	s := &cluster.Secret{Key: cluster.Key{Namespace: namespace, Name: name}, Type: "kubernetes.io/tls"}
	if n >= 0 {
		s.Data = certificatesOf()[n]
	}
	return s
}

// gatewayWith returns the Gateway a/g with these listeners.
func gatewayWith(listeners ...cluster.Listener) *cluster.Frontend {
	return &cluster.Frontend{
		Kind: cluster.KindGateway, Key: cluster.Key{Namespace: "a", Name: "g"},
		Gateway: &cluster.GatewaySpec{Class: "ours", Listeners: listeners, ListenerSets: cluster.AllowedNamespaces{From: cluster.FromAll}},
	}
}

// https returns a listener of the port 443 with references to Secrets of the namespace a, or NS/NAME.
func https(name, hostname string, certificates ...string) cluster.Listener {
	l := cluster.Listener{
		Name: name, Hostname: hostname, Port: 443, Protocol: cluster.HTTPSProtocol,
		Namespaces: cluster.AllowedNamespaces{From: cluster.FromAll}, TLS: &cluster.ListenerTLS{Mode: cluster.TLSTerminate},
	}
	for _, c := range certificates {
		namespace, secret, foreign := strings.Cut(c, "/")
		if !foreign {
			namespace, secret = "a", c
		}
		l.TLS.Certificates = append(l.TLS.Certificates, cluster.ObjectRef{Kind: "Secret", Namespace: namespace, Name: secret})
	}
	return l
}

// follower compiles what changes of a Store.
type follower struct {
	store *cluster.Store
	feed  *cluster.Feed
	*Compiler
	made Output
}

func follow(objects ...cluster.Object) *follower {
	f := &follower{store: newStore(append((&world{}).classes(), objects...)...), Compiler: NewCompiler(testConfig)}
	f.feed = f.store.Subscribe()
	f.apply()
	return f
}

// update changes the Store, and compiles the changes.
func (f *follower) update(change func(tx *cluster.Tx)) {
	f.store.Update(change)
	f.apply()
}

func (f *follower) apply() {
	changes := f.feed.Pending()
	f.store.View(func(v *cluster.View) { f.made = f.Apply(v, &changes) })
}

// served returns which key pair of the tests a client gets for a server name: its number, or what there is
// instead.
func (f *follower) served(name string) string {
	p := f.made.Table.Port(table.Socket{Port: 443})
	if p == nil {
		return "no port"
	}
	if !p.TLS() {
		return "no TLS"
	}
	owner, c := p.Certificate(&tls.ClientHelloInfo{ServerName: name})
	switch {
	case owner == nil:
		return "no listener"
	case c == nil:
		return "none"
	}
	for n, data := range certificatesOf() {
		pair, err := tls.X509KeyPair(data["tls.crt"], data["tls.key"])
		if err == nil && slices.Equal(pair.Certificate[0], c.Certificate[0]) {
			return strconv.Itoa(n)
		}
	}
	return "another"
}

// said returns the conditions of a listener, but those that all is well, each with its reason.
func said(l *ListenerVerdict) string {
	var words []string
	for _, c := range l.Conditions {
		word := fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Reason)
		if !slices.Contains([]string{"Accepted=True Accepted", "ResolvedRefs=True ResolvedRefs", "Conflicted=False NoConflicts"}, word) {
			words = append(words, word)
		}
	}
	if c := l.Unprogrammed; c != nil {
		words = append(words, fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Reason))
	}
	return strings.Join(words, ", ")
}

// conditions returns what is said of the first listener of the Gateway a/g.
func (f *follower) conditions() string {
	return said(&f.Verdicts().Gateways[cluster.Key{Namespace: "a", Name: "g"}].Listeners[0])
}

func TestCertificateRefs(t *testing.T) {
	t.Parallel()
	grant := func(kind, secret string) *cluster.ReferenceGrant {
		return &cluster.ReferenceGrant{
			Key:  cluster.Key{Namespace: "b", Name: "grant"},
			From: []cluster.GrantFrom{{GroupKind: cluster.GroupKind{Group: gatewayGroup, Kind: kind}, Namespace: "a"}},
			To:   []cluster.GrantTo{{GroupKind: cluster.GroupKind{Kind: "Secret"}, Name: secret}},
		}
	}
	of := func(group, kind string) cluster.Listener {
		l := https("l", "", "c")
		l.TLS.Certificates[0].Group, l.TLS.Certificates[0].Kind = group, kind
		return l
	}
	opaque := secretOf("a", "c", 0)
	opaque.Type = "Opaque"
	mixed := secretOf("a", "c", 0)
	mixed.Data = map[string]cluster.Confidential{"tls.crt": certificatesOf()[0]["tls.crt"], "tls.key": certificatesOf()[1]["tls.key"]}
	none := https("l", "")
	without := https("l", "")
	without.TLS = nil
	passthrough := https("l", "", "c")
	passthrough.TLS.Mode = cluster.TLSPassthrough
	const invalid = "ResolvedRefs=False InvalidCertificateRef, Programmed=False Invalid"
	for claim, tt := range map[string]struct {
		listener cluster.Listener
		objects  []cluster.Object
		served   string
		said     string
	}{
		"a Secret":                      {https("l", "", "c"), []cluster.Object{secretOf("a", "c", 0)}, "0", ""},
		"no such Secret":                {https("l", "", "c"), nil, "none", invalid},
		"a Secret without a key pair":   {https("l", "", "c"), []cluster.Object{secretOf("a", "c", -1)}, "none", invalid},
		"a Secret of another type":      {https("l", "", "c"), []cluster.Object{opaque}, "none", invalid},
		"a key of another certificate":  {https("l", "", "c"), []cluster.Object{mixed}, "none", invalid},
		"another group":                 {of("wrong.test", "Secret"), []cluster.Object{secretOf("a", "c", 0)}, "none", invalid},
		"another kind":                  {of("", "Wrong"), []cluster.Object{secretOf("a", "c", 0)}, "none", invalid},
		"no reference":                  {none, nil, "none", "Programmed=False Invalid"},
		"no tls":                        {without, nil, "none", "Programmed=False Invalid"},
		"one of two that does not lead": {https("l", "", "c", "d"), []cluster.Object{secretOf("a", "d", 1)}, "1", "ResolvedRefs=False InvalidCertificateRef"},
		"two Secrets": {
			https("l", "", "c", "d"), []cluster.Object{secretOf("a", "c", 0), secretOf("a", "d", 1)}, "1", "",
		},
		"another namespace without a grant": {
			https("l", "", "b/c"), []cluster.Object{secretOf("b", "c", 0)}, "none",
			"ResolvedRefs=False RefNotPermitted, Programmed=False Invalid",
		},
		"no such Secret in another namespace": {
			https("l", "", "b/c"), nil, "none", "ResolvedRefs=False RefNotPermitted, Programmed=False Invalid",
		},
		"a grant":                {https("l", "", "b/c"), []cluster.Object{secretOf("b", "c", 0), grant("Gateway", "")}, "0", ""},
		"a grant for the Secret": {https("l", "", "b/c"), []cluster.Object{secretOf("b", "c", 0), grant("Gateway", "c")}, "0", ""},
		"a grant for another Secret": {
			https("l", "", "b/c"), []cluster.Object{secretOf("b", "c", 0), grant("Gateway", "d")}, "none",
			"ResolvedRefs=False RefNotPermitted, Programmed=False Invalid",
		},
		"a grant for another kind": {
			https("l", "", "b/c"), []cluster.Object{secretOf("b", "c", 0), grant("ListenerSet", "")}, "none",
			"ResolvedRefs=False RefNotPermitted, Programmed=False Invalid",
		},
		"a granted Secret that does not exist": {https("l", "", "b/c"), []cluster.Object{grant("Gateway", "")}, "none", invalid},
		"passthrough": {
			passthrough, []cluster.Object{secretOf("a", "c", 0)}, "no port", "Accepted=False UnsupportedValue, Programmed=False Invalid",
		},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			f := follow(append(tt.objects, gatewayWith(tt.listener))...)
			if got := f.served("a.x.test"); got != tt.served {
				t.Errorf("the certificate is %s, want %s", got, tt.served)
			}
			if got := f.conditions(); got != tt.said {
				t.Errorf("conditions %q, want %q", got, tt.said)
			}
			programmed := f.Verdicts().Gateways[cluster.Key{Namespace: "a", Name: "g"}].Unprogrammed == nil
			if want := !strings.Contains(tt.said, "Programmed"); programmed != want {
				t.Errorf("the Gateway is programmed: %t, want %t", programmed, want)
			}
		})
	}
}

// TestSecretChanges: a Secret is rotated, made unusable, deleted and made again.
func TestSecretChanges(t *testing.T) {
	t.Parallel()
	const invalid = "ResolvedRefs=False InvalidCertificateRef"
	set := &cluster.ListenerSet{
		Key: cluster.Key{Namespace: "a", Name: "s"}, Listeners: []cluster.Listener{https("l", "y.test", "c")},
		Parent: cluster.ObjectRef{Group: gatewayGroup, Kind: "Gateway", Namespace: "a", Name: "g"},
	}
	f := follow(gatewayWith(https("l", "x.test", "c"), https("other", "z.test", "d")), secretOf("a", "c", 0), secretOf("a", "d", 2), set)
	other := func() *table.Listener {
		l, _ := f.made.Table.Port(table.Socket{Port: 443}).Host("z.test")
		return l
	}
	was := other()
	put := func(o cluster.Object) func(*cluster.Tx) { return func(tx *cluster.Tx) { tx.Put(o) } }
	remove := func(tx *cluster.Tx) { tx.Delete(cluster.KindSecret, cluster.Key{Namespace: "a", Name: "c"}) }
	for _, step := range []struct {
		what   string
		change func(*cluster.Tx)
		served string
		said   string
	}{
		{"is rotated", put(secretOf("a", "c", 1)), "1", ""},
		{"has no key pair any more", put(secretOf("a", "c", -1)), "1", invalid},
		{"is rotated again", put(secretOf("a", "c", 0)), "0", ""},
		{"is deleted", remove, "none", invalid + ", Programmed=False Invalid"},
		{"is made without a key pair", put(secretOf("a", "c", -1)), "none", invalid + ", Programmed=False Invalid"},
		{"has a key pair again", put(secretOf("a", "c", 2)), "2", ""},
	} {
		f.update(step.change)
		for _, name := range []string{"x.test", "y.test"} {
			if got := f.served(name); got != step.served {
				t.Errorf("the Secret %s: the certificate of %s is %s, want %s", step.what, name, got, step.served)
			}
		}
		if got := f.conditions(); got != step.said {
			t.Errorf("the Secret %s: conditions %q, want %q", step.what, got, step.said)
		}
		if other() != was {
			t.Errorf("the Secret %s: the listener that does not refer to it was made again", step.what)
		}
	}
}

// TestGrantRemoved: without its grant, a certificate is not served any more, read or not.
func TestGrantRemoved(t *testing.T) {
	t.Parallel()
	grant := &cluster.ReferenceGrant{
		Key:  cluster.Key{Namespace: "b", Name: "grant"},
		From: []cluster.GrantFrom{{GroupKind: cluster.GroupKind{Group: gatewayGroup, Kind: "Gateway"}, Namespace: "a"}},
		To:   []cluster.GrantTo{{GroupKind: cluster.GroupKind{Kind: "Secret"}}},
	}
	for _, freshness := range []cluster.Freshness{cluster.Live, cluster.Confirming} {
		f := follow(gatewayWith(https("l", "", "b/c", "d")), secretOf("b", "c", 0), grant)
		if got := f.served("x.test"); got != "0" {
			t.Fatalf("with the grant: %s, want 0", got)
		}
		f.update(func(tx *cluster.Tx) {
			tx.SetFreshness(freshness, cluster.KindSecret)
			tx.Delete(cluster.KindReferenceGrant, grant.Key)
		})
		if got := f.served("x.test"); got != "none" {
			t.Errorf("without the grant, Secrets %s: %s, want none", freshness, got)
		}
		if got := f.conditions(); !strings.HasPrefix(got, "ResolvedRefs=False RefNotPermitted") {
			t.Errorf("without the grant, Secrets %s: %s", freshness, got)
		}
	}
}

// TestUnreadSecrets: while a Secret that something refers to anew is not read, the certificates of before are
// served.
func TestUnreadSecrets(t *testing.T) {
	t.Parallel()
	i := ingressWith("i", []string{"i.test"}, cluster.IngressTLS{Secret: "c"})
	service := &cluster.Service{Key: cluster.Key{Namespace: "a", Name: "s1"}, Ports: []cluster.Port{{Number: 80, Protocol: cluster.TCP}}}
	f := follow(gatewayWith(https("l", "x.test", "c")), secretOf("a", "c", 0), i, service)
	f.update(func(tx *cluster.Tx) { // as the source of the API does
		tx.SetFreshness(cluster.Confirming, cluster.KindSecret)
		tx.Put(gatewayWith(https("l", "x.test", "d")))
		tx.Put(ingressWith("i", []string{"i.test"}, cluster.IngressTLS{Secret: "d"}))
		tx.Delete(cluster.KindSecret, cluster.Key{Namespace: "a", Name: "c"})
	})
	for _, name := range []string{"x.test", "i.test"} {
		if got := f.served(name); got != "0" {
			t.Errorf("while the Secret is not read, the certificate of %s is %s, want 0", name, got)
		}
	}
	if got := f.conditions(); got != "ResolvedRefs=Unknown Pending" {
		t.Errorf("while the Secret is not read: %s", got)
	}
	if got := f.Verdicts().Ingresses[i.Key].Problems; got != nil {
		t.Errorf("while the Secret is not read: %v", got)
	}
	f.update(func(tx *cluster.Tx) {
		tx.Put(secretOf("a", "d", 1))
		tx.SetFreshness(cluster.Live, cluster.KindSecret)
	})
	for _, name := range []string{"x.test", "i.test"} {
		if got := f.served(name); got != "1" {
			t.Errorf("when the Secret is read, the certificate of %s is %s, want 1", name, got)
		}
	}
	f.update(func(tx *cluster.Tx) {
		tx.SetFreshness(cluster.Confirming, cluster.KindSecret)
		tx.Put(gatewayWith(https("l", "x.test", "none")))
	})
	f.update(func(tx *cluster.Tx) { tx.SetFreshness(cluster.Live, cluster.KindSecret) })
	if got := f.served("x.test"); got != "none" {
		t.Errorf("when the Secret does not exist, the certificate is %s, want none", got)
	}
}

// ingressWith returns the Ingress a/NAME with a rule for each host. Its age is the number of its name's first
// letter.
func ingressWith(name string, hosts []string, tls ...cluster.IngressTLS) *cluster.Frontend {
	spec := &cluster.IngressSpec{Meta: cluster.Meta{Age: cluster.Age{Created: int64(name[0])}}, Class: "ours", TLS: tls}
	for _, host := range hosts {
		spec.Rules = append(spec.Rules, cluster.IngressRule{Host: host, Paths: []cluster.IngressPath{{
			Path: "/", Type: cluster.PathPrefix, Backend: cluster.IngressBackend{Backend: cluster.Backend{Service: "s1", Number: 80}},
		}}})
	}
	return &cluster.Frontend{Kind: cluster.KindIngress, Key: cluster.Key{Namespace: "a", Name: name}, Ingress: spec}
}

func TestIngressCertificates(t *testing.T) {
	t.Parallel()
	entry := func(secret string, hosts ...string) cluster.IngressTLS {
		return cluster.IngressTLS{Secret: secret, Hosts: hosts}
	}
	secrets := []cluster.Object{
		secretOf("a", "c", 0), secretOf("a", "d", 1), secretOf("a", "bad", -1),
		&cluster.Service{Key: cluster.Key{Namespace: "a", Name: "s1"}, Ports: []cluster.Port{{Number: 80, Protocol: cluster.TCP}}},
	}
	single := ingressWith("a", nil, entry("c", "x.test"))
	single.Ingress.Default = &cluster.IngressBackend{Backend: cluster.Backend{Service: "s1", Number: 80}}
	http := https("l", "")
	http.Protocol, http.TLS = cluster.HTTPProtocol, nil
	x := []string{"x.test"}
	for claim, tt := range map[string]struct {
		objects  []cluster.Object
		served   string // for x.test, w.x.test, y.test
		problems string // of the Ingress a
	}{
		"no tls": {[]cluster.Object{ingressWith("a", x)}, "no port, no port, no port", ""},
		"a host": {[]cluster.Object{ingressWith("a", x, entry("c", "x.test"))}, "0, none, none", ""},
		"without hosts, those of the rules": {
			[]cluster.Object{ingressWith("a", []string{"x.test", "y.test"}, entry("c"))}, "0, none, 0", "",
		},
		"without any host, all": {[]cluster.Object{ingressWith("a", []string{""}, entry("c"))}, "0, 0, 0", ""},
		"a wildcard":            {[]cluster.Object{ingressWith("a", []string{"*.x.test"}, entry("c", "*.x.test"))}, "none, 0, none", ""},
		"a host that a wildcard of the rules has": {
			[]cluster.Object{ingressWith("a", []string{"*.x.test"}, entry("c", "w.x.test"))}, "none, 0, none", "",
		},
		"a wildcard that has a host of the rules": {
			[]cluster.Object{ingressWith("a", []string{"w.x.test"}, entry("c", "*.x.test"))}, "none, 0, none", "",
		},
		"a host for each of two Secrets": {
			[]cluster.Object{ingressWith("a", []string{"x.test", "y.test"}, entry("c", "x.test"), entry("d", "y.test"))}, "0, none, 1", "",
		},
		"the first of an Ingress": {
			[]cluster.Object{ingressWith("a", x, entry("d", "x.test"), entry("c", "x.test"))}, "1, none, none", "",
		},
		"the oldest of two": {
			[]cluster.Object{ingressWith("b", x, entry("c", "x.test")), ingressWith("a", x, entry("d", "x.test"))}, "1, none, none", "",
		},
		"the host of no rule": {
			[]cluster.Object{ingressWith("a", x, entry("c", "y.test", "x.test")), ingressWith("b", []string{"y.test"}, entry("d", "y.test"))},
			"0, none, 1", "spec.tls[0].hosts: no rule has the host y.test",
		},
		"a default backend has all hosts": {[]cluster.Object{single}, "0, none, none", ""},
		"no such Secret": {
			[]cluster.Object{ingressWith("a", x, entry("e"))}, "no port, no port, no port", "spec.tls[0].secretName: Secret a/e does not exist",
		},
		"a Secret without a key pair": {
			[]cluster.Object{ingressWith("a", x, entry("c"), entry("bad"))}, "0, none, none",
			"spec.tls[1].secretName: Secret a/bad has no key pair in tls.crt and tls.key: failed to find any PEM data in certificate input",
		},
		"no Secret": {
			[]cluster.Object{ingressWith("a", x, entry("", "x.test"))}, "no port, no port, no port",
			"spec.tls[0].secretName: is empty, and the gateway has no default certificate",
		},
		"beside a listener with TLS": {
			[]cluster.Object{ingressWith("a", x, entry("c")), gatewayWith(https("l", "y.test", "d"))}, "0, none, 1", "",
		},
		"beside a listener without TLS": {
			[]cluster.Object{ingressWith("a", x, entry("c")), gatewayWith(http)}, "no TLS, no TLS, no TLS",
			"spec.tls: gateway a/g l serves HTTP at port 443",
		},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			f := follow(append(tt.objects, secrets...)...)
			got := strings.Join([]string{f.served("x.test"), f.served("w.x.test"), f.served("y.test")}, ", ")
			if got != tt.served {
				t.Errorf("the certificates of x, w.x and y.test are %s, want %s", got, tt.served)
			}
			var problems []string
			for _, p := range f.Verdicts().Ingresses[cluster.Key{Namespace: "a", Name: "a"}].Problems {
				problems = append(problems, p.Field+": "+p.Reason)
			}
			if got := strings.Join(problems, "; "); got != tt.problems {
				t.Errorf("problems %q, want %q", got, tt.problems)
			}
			if _, found := f.made.Table.Port(table.Socket{Port: 80}).Find("x.test", &table.Request{Path: "/"}); found == nil && f.served("x.test") == "0" {
				t.Error("the host has a certificate, and is not served at port 80")
			}
		})
	}
}

// TestDefaultCertificate: with a certificate for all, Ingresses are served with TLS also without tls.
func TestDefaultCertificate(t *testing.T) {
	t.Parallel()
	cfg := testConfig
	cfg.DefaultCertificate, cfg.IngressTLSPort = true, 8443
	store := newStore(append((&world{}).classes(), ingressWith("a", []string{"x.test"}, cluster.IngressTLS{Hosts: []string{"x.test"}}))...)
	c := NewCompiler(cfg)
	store.View(func(v *cluster.View) {
		p := c.Apply(v, &cluster.Changes{Everything: true}).Table.Port(table.Socket{Port: 8443})
		if p == nil || !p.TLS() {
			t.Fatal("the port of Ingresses with TLS is not served")
		}
		owner, certificate := p.Certificate(&tls.ClientHelloInfo{ServerName: "x.test"})
		if owner == nil || certificate != nil {
			t.Errorf("Certificate(x.test) = %v, %v, want an owner that has none", owner, certificate)
		}
	})
	for _, p := range c.Verdicts().Ingresses[cluster.Key{Namespace: "a", Name: "a"}].Problems {
		if strings.HasPrefix(p.Field, "spec.tls") {
			t.Errorf("%s %s", p.Field, p.Reason)
		}
	}
}

func TestOverlaps(t *testing.T) {
	t.Parallel()
	for claim, tt := range map[string]struct{ hostnames, want string }{
		"the example of the API":         {"foo.example.com foo.example.org *.example.com", "foo.example.com *.example.com"},
		"a wildcard is not for itself":   {"*.a.test a.test", ""},
		"wildcards of wildcards":         {"*.a.test *.b.a.test", "*.a.test *.b.a.test"},
		"many labels":                    {"*.test c.b.a.test", "*.test c.b.a.test"},
		"all hosts":                      {"all x.test", "all x.test"},
		"all hosts, alone":               {"all", ""},
		"names that have an end alike":   {"*.a.test xa.test", ""},
		"only those that overlap":        {"*.a.test b.a.test c.test", "*.a.test b.a.test"},
		"one that is not valid is none":  {"*.a.test !b.a.test", ""},
		"one at another port is none":    {"*.a.test @b.a.test", ""},
		"one without TLS at another one": {"*.a.test -b.a.test", ""},
	} {
		var listeners []cluster.Listener
		for name := range strings.FieldsSeq(tt.hostnames) {
			l := https(name, strings.Trim(strings.TrimPrefix(name, "all"), "!@-"), "c")
			switch name[0] {
			case '!':
				l.TLS.Mode = cluster.TLSPassthrough
			case '@':
				l.Port = 8443
			case '-':
				l.Port, l.Protocol = 80, cluster.HTTPProtocol
			}
			listeners = append(listeners, l)
		}
		f := follow(gatewayWith(listeners...), secretOf("a", "c", 0))
		var got []string
		for _, l := range f.Verdicts().Gateways[cluster.Key{Namespace: "a", Name: "g"}].Listeners {
			if strings.Contains(said(&l), "OverlappingTLSConfig=True OverlappingHostnames") {
				got = append(got, l.Name)
			}
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: of %s, %s overlap, want %s", claim, tt.hostnames, got, tt.want)
		}
	}
}

// TestMixedProtocols: of listeners of one Gateway with different protocols at a port, none is served.
func TestMixedProtocols(t *testing.T) {
	t.Parallel()
	plain := func(name string, port uint16) cluster.Listener {
		l := https(name, name+".test")
		l.Port, l.Protocol, l.TLS = port, cluster.HTTPProtocol, nil
		return l
	}
	f := follow(gatewayWith(plain("a", 443), plain("b", 443), https("c", "c.test", "c"), plain("d", 80)), secretOf("a", "c", 0))
	const lost = "Accepted=False ProtocolConflict, Conflicted=True ProtocolConflict, Programmed=False ProtocolConflict"
	for _, l := range f.Verdicts().Gateways[cluster.Key{Namespace: "a", Name: "g"}].Listeners {
		want := lost
		if l.Name == "d" {
			want = ""
		}
		if got := said(&l); got != want {
			t.Errorf("listener %s: %q, want %q", l.Name, got, want)
		}
	}
	if got := f.served("c.test"); got != "no port" {
		t.Errorf("port 443: %s, want no port", got)
	}
}
