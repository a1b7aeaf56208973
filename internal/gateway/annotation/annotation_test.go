package annotation

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/internal/cluster"
)

// prefixed returns annotations with their full names.
func prefixed(pairs map[string]string) map[string]string {
	all := make(map[string]string)
	for name, value := range pairs {
		all[Prefix+name] = value
	}
	return all
}

func TestParse(t *testing.T) {
	t.Parallel()
	type annotations = map[string]string
	for claim, test := range map[string]struct {
		annotations annotations
		want        Settings // SSLRedirect and Protocol are set
		verdicts    map[string]Effect
	}{
		"without annotations hosts with TLS redirect": {nil, Settings{}, nil},
		"sizes have units": {
			annotations{"proxy-body-size": "8m"}, Settings{Body: Size{8 << 20, true}},
			map[string]Effect{"proxy-body-size": Used},
		},
		"size 0 is any": {
			annotations{"proxy-body-size": "0"}, Settings{Body: Size{0, true}}, map[string]Effect{"proxy-body-size": Used},
		},
		"a size with a unit that is none": {
			annotations{"proxy-body-size": "8mb"}, Settings{}, map[string]Effect{"proxy-body-size": Invalid},
		},
		"groups of expressions": {
			annotations{"rewrite-target": "/$2"}, Settings{Rewrite: "/$2"}, map[string]Effect{"rewrite-target": Used},
		},
		"variables that are no groups": {
			annotations{"rewrite-target": "/$host"}, Settings{}, map[string]Effect{"rewrite-target": Invalid},
		},
		"ranges and addresses": {
			annotations{"whitelist-source-range": "10.1.2.3/8, 192.0.2.1,2001:db8::/32"},
			Settings{Allow: []netip.Prefix{
				netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("2001:db8::/32"),
			}}, map[string]Effect{"whitelist-source-range": Used},
		},
		"an invalid range closes": {
			annotations{"whitelist-source-range": "10.0.0.0/33"},
			Settings{Denied: `whitelist-source-range "10.0.0.0/33" is neither an address nor a range of addresses`},
			map[string]Effect{"whitelist-source-range": Invalid},
		},
		"passwords need a Secret": {
			annotations{"auth-type": "basic"}, Settings{Denied: "auth-type needs auth-secret", Basic: &Basic{}},
			map[string]Effect{"auth-type": Invalid},
		},
		"digest closes": {
			annotations{"auth-type": "digest", "auth-secret": "a"}, Settings{Denied: "auth-type digest is not supported"},
			map[string]Effect{"auth-type": Unsupported, "auth-secret": Used},
		},
		"a Secret alone has no effect": {
			annotations{"auth-secret": "passwords"}, Settings{}, map[string]Effect{"auth-secret": Ignored},
		},
		"passwords": {
			annotations{"auth-type": "basic", "auth-secret": "a/b", "auth-secret-type": "auth-map", "auth-realm": "Staff only"},
			Settings{Basic: &Basic{Namespace: "a", Secret: "b", Map: true, Realm: "Staff only"}},
			map[string]Effect{"auth-type": Used, "auth-secret": Used, "auth-secret-type": Used, "auth-realm": Used},
		},
		"a canary that is none": {
			annotations{"canary": "false", "canary-weight": "20"}, Settings{},
			map[string]Effect{"canary": Used, "canary-weight": Ignored},
		},
		"a canary has no other annotations": {
			annotations{"canary": "true", "canary-weight": "20", "proxy-body-size": "1m"},
			Settings{Canary: &Canary{Weight: 20, Total: 100}, Body: Size{1 << 20, true}},
			map[string]Effect{"canary": Used, "canary-weight": Used, "proxy-body-size": Ignored},
		},
		"a canary does not need the affinity of the main Ingress": {
			annotations{"canary": "true", "affinity-canary-behavior": "sticky"},
			Settings{Canary: &Canary{Total: 100}},
			map[string]Effect{"canary": Used, "affinity-canary-behavior": Used},
		},
		"sessions that canaries do not keep": {
			annotations{"canary": "true", "affinity-canary-behavior": "legacy"},
			Settings{Canary: &Canary{Total: 100}},
			map[string]Effect{"canary": Used, "affinity-canary-behavior": Unsupported},
		},
		"affinity of canaries without affinity": {
			annotations{"affinity-canary-behavior": "sticky"}, Settings{}, map[string]Effect{"affinity-canary-behavior": Ignored},
		},
		"a total weight below 100 is 100": {
			annotations{"canary": "true", "canary-weight": "70", "canary-weight-total": "50"},
			Settings{Canary: &Canary{Weight: 70, Total: 100}},
			map[string]Effect{"canary": Used, "canary-weight": Used, "canary-weight-total": Used},
		},
		"CORS that is off": {
			annotations{"enable-cors": "false", "cors-max-age": "10"}, Settings{},
			map[string]Effect{"enable-cors": Used, "cors-max-age": Ignored},
		},
		"limits": {
			annotations{"limit-rps": "10", "limit-whitelist": "10.0.0.0/8"},
			Settings{Limits: &Limits{PerSecond: 10, Burst: 5, Except: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}},
			map[string]Effect{"limit-rps": Used, "limit-whitelist": Used},
		},
		"the newer name of a list counts alone": {
			annotations{
				"allowlist-source-range": "192.0.2.0/24", "whitelist-source-range": "10.0.0.0/8",
				"limit-rps": "10", "limit-allowlist": "192.0.2.1", "limit-whitelist": "10.0.0.1",
			},
			Settings{
				Allow:  []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")},
				Limits: &Limits{PerSecond: 10, Burst: 5, Except: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")}},
			},
			map[string]Effect{
				"allowlist-source-range": Used, "whitelist-source-range": Ignored,
				"limit-rps": Used, "limit-allowlist": Used, "limit-whitelist": Ignored,
			},
		},
		"IPv4 addresses in IPv6": {
			annotations{"denylist-source-range": "::ffff:192.0.2.0/120, ::ffff:198.51.100.1"},
			Settings{Deny: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("198.51.100.1/32")}},
			map[string]Effect{"denylist-source-range": Used},
		},
		"timeouts have no unit": {
			annotations{"proxy-read-timeout": "60s", "proxy-send-timeout": "60"}, Settings{SendTimeout: time.Minute},
			map[string]Effect{"proxy-read-timeout": Invalid, "proxy-send-timeout": Unsupported},
		},
		"a temporal redirect comes first": {
			annotations{"temporal-redirect": "https://a.example/", "permanent-redirect": "https://b.example/"},
			Settings{Redirect: &Redirect{"https://a.example/", 302}},
			map[string]Effect{"temporal-redirect": Used, "permanent-redirect": Ignored},
		},
		"a code of a redirect": {
			annotations{"permanent-redirect": "https://b.example/x?y=1", "permanent-redirect-code": "308"},
			Settings{Redirect: &Redirect{"https://b.example/x?y=1", 308}},
			map[string]Effect{"permanent-redirect": Used, "permanent-redirect-code": Used},
		},
		"authorization at the host of the request": {
			annotations{"auth-url": "https://$host/oauth2/auth", "auth-signin": "https://$host/oauth2/start?rd=$escaped_request_uri"},
			Settings{External: &External{URL: "https://$host/oauth2/auth", SignIn: "https://$host/oauth2/start?rd=$escaped_request_uri"}},
			map[string]Effect{"auth-url": Used, "auth-signin": Used},
		},
		"a client certificate closes the host": {
			annotations{"auth-tls-secret": "a/ca"}, Settings{
				Denied: "auth-tls-secret is not supported", HostDenied: "auth-tls-secret is not supported",
				ClientCertificates: &ClientCertificates{Namespace: "a", Secret: "ca", Verify: "on", Depth: 1},
			}, map[string]Effect{"auth-tls-secret": Unsupported},
		},
		"a client certificate closes the host, whatever closes the paths": {
			annotations{"auth-tls-secret": "a/b/c", "allowlist-source-range": "x"}, Settings{
				Denied:             `allowlist-source-range "x" is neither an address nor a range of addresses`,
				HostDenied:         `auth-tls-secret "a/b/c" is not the name of a Secret`,
				ClientCertificates: &ClientCertificates{Verify: "on", Depth: 1},
			}, map[string]Effect{"auth-tls-secret": Invalid, "allowlist-source-range": Invalid},
		},
		"an optional client certificate closes, as backends may depend on what is said of it": {
			annotations{"auth-tls-secret": "a/ca", "auth-tls-verify-client": "optional"}, Settings{
				Denied: "auth-tls-secret is not supported", HostDenied: "auth-tls-secret is not supported",
				ClientCertificates: &ClientCertificates{Namespace: "a", Secret: "ca", Verify: "on", Depth: 1},
			}, map[string]Effect{"auth-tls-secret": Unsupported, "auth-tls-verify-client": Unsupported},
		},
		"a client certificate that nobody asks for": {
			annotations{"auth-tls-secret": "a/ca", "auth-tls-verify-client": "off"}, Settings{
				ClientCertificates: &ClientCertificates{Namespace: "a", Secret: "ca", Verify: "on", Depth: 1},
			}, map[string]Effect{"auth-tls-secret": Unsupported, "auth-tls-verify-client": Unsupported},
		},
		"snippets of the server close the host": {
			annotations{"server-snippet": "deny all;"}, Settings{
				Denied:     "server-snippet " + known["server-snippet"].Text,
				HostDenied: "server-snippet " + known["server-snippet"].Text,
			}, map[string]Effect{"server-snippet": Unsupported},
		},
		"snippets are never run": {
			annotations{"configuration-snippet": "return 200;"},
			Settings{Denied: "configuration-snippet " + known["configuration-snippet"].Text},
			map[string]Effect{"configuration-snippet": Unsupported},
		},
		"the names of certificates close, whatever else is said": {
			annotations{"auth-tls-match-cn": "CN=a", "auth-tls-verify-client": "optional"},
			Settings{
				Denied: "auth-tls-match-cn " + known["auth-tls-match-cn"].Text, HostDenied: "auth-tls-match-cn " + known["auth-tls-match-cn"].Text,
			},
			map[string]Effect{"auth-tls-match-cn": Unsupported, "auth-tls-verify-client": Unsupported},
		},
		"a firewall that is off": {
			annotations{"enable-modsecurity": "false"}, Settings{}, map[string]Effect{"enable-modsecurity": Unsupported},
		},
		"names that there are not": {annotations{"proxy-body-sise": "1m"}, Settings{}, map[string]Effect{"proxy-body-sise": Unsupported}},
		"empty values":             {annotations{"rewrite-target": " "}, Settings{}, map[string]Effect{"rewrite-target": Ignored}},
		"aliases":                  {annotations{"server-alias": "B.example, a.example"}, Settings{Aliases: []string{"a.example", "b.example"}}, map[string]Effect{"server-alias": Used}},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			test.want.SSLRedirect, test.want.Protocol = true, HTTP
			got, verdicts := Parse(prefixed(test.annotations))
			if diff := cmp.Diff(&test.want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
				t.Errorf("Parse(%v): settings (-want +got):\n%s", test.annotations, diff)
			}
			effects := make(map[string]Effect)
			for _, v := range verdicts {
				effects[v.Name] = v.Effect
				if v.Effect != Used && v.Text == "" {
					t.Errorf("Parse(%v): %s is %v without a reason", test.annotations, v.Name, v.Effect)
				}
			}
			if !maps.Equal(effects, test.verdicts) {
				t.Errorf("Parse(%v): verdicts %v, want %v", test.annotations, effects, test.verdicts)
			}
		})
	}
}

// TestKnown: what is not used, or not done, says why.
func TestKnown(t *testing.T) {
	t.Parallel()
	for _, k := range All() {
		if k.Effect != Used && k.Text == "" || k.Routes == "" {
			t.Errorf("%s: %v %q, %v %q: no reason", k.Name, k.Effect, k.Text, k.Outcome, k.Routes)
		}
		if k.Effect == Used && k.read == nil {
			t.Errorf("%s is used, and never read", k.Name)
		}
	}
}

// ingressOf returns an Ingress of which the age is the order of the names.
func ingressOf(name string, annotations map[string]string, paths ...cluster.IngressPath) *Ingress {
	settings, _ := Parse(prefixed(annotations))
	return &Ingress{Key: cluster.Key{Namespace: "a", Name: name}, Settings: settings, Spec: &cluster.IngressSpec{
		Rules: []cluster.IngressRule{{Host: "x.test", Paths: paths}},
	}}
}

func TestMerge(t *testing.T) {
	t.Parallel()
	path := func(text string, kind cluster.PathType) cluster.IngressPath {
		return cluster.IngressPath{Path: text, Type: kind}
	}
	for claim, test := range map[string]struct {
		of    []*Ingress
		want  string
		regex bool
		lost  int
	}{
		"exact paths first, then longer ones": {
			of:   []*Ingress{ingressOf("a", nil, path("/", cluster.PathPrefix), path("/foo", cluster.PathPrefix), path("/f", cluster.PathExact))},
			want: "a:/f a:/foo a:/",
		},
		"with expressions exact ones are like others": {
			of: []*Ingress{
				ingressOf("a", nil, path("/", cluster.PathPrefix), path("/f", cluster.PathExact)),
				ingressOf("b", map[string]string{"use-regex": "true"}, path("/foo(/|$)(.*)", cluster.PathImplementationSpecific)),
			}, want: "b:/foo(/|$)(.*) a:/f a:/", regex: true,
		},
		"rewriting turns expressions on": {
			of:   []*Ingress{ingressOf("a", map[string]string{"rewrite-target": "/"}, path("/a", cluster.PathPrefix))},
			want: "a:/a", regex: true,
		},
		"rewriting to the path itself does not": {
			of:   []*Ingress{ingressOf("a", map[string]string{"rewrite-target": "/a"}, path("/a", cluster.PathPrefix))},
			want: "a:/a",
		},
		"the older one has a path": {
			of:   []*Ingress{ingressOf("b", nil, path("/a", cluster.PathPrefix)), ingressOf("a", nil, path("/a", cluster.PathPrefix))},
			want: "a:/a",
		},
		"canaries are not of their own": {
			of: []*Ingress{
				ingressOf("a", nil, path("/a", cluster.PathPrefix)),
				ingressOf("b", map[string]string{"canary": "true", "use-regex": "true"}, path("/a", cluster.PathPrefix), path("/b", cluster.PathPrefix)),
			}, want: "a:/a+b", lost: 1,
		},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			h := Merge("x.test", test.of)
			var got []string
			for _, l := range h.Locations {
				text := l.Of.Key.Name + ":" + l.Text
				if l.Canary != nil {
					text += "+" + l.Canary.Of.Key.Name
				}
				got = append(got, text)
			}
			if all := strings.Join(got, " "); all != test.want || h.Regex != test.regex || len(h.Lost) != test.lost {
				t.Errorf("Merge: %s, regex %t, %d lost; want %s, %t, %d", all, h.Regex, len(h.Lost), test.want, test.regex, test.lost)
			}
		})
	}
}

func TestLiteral(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"/a/b": "/a/b", "/a/(?!b)c": "/a/", "/ab?(?=c)": "/a", "/ab*": "/a", "/ab+(?=c)": "/ab", "/ab{0,1}": "/a", "(?=/a)": "",
		"/a(?=b)|/c": "", `/a\1`: "/a", "^/a": "", "*": "", "/caf\u00e9?(?=x)": "/caf", "/caf\u00e9(?=x)": "/caf\u00e9",
	} {
		if got := (&Location{Text: text}).Literal(); got != want {
			t.Errorf("Literal of %s: %q, want %q", text, got, want)
		}
	}
}

// FuzzParse: no value of any annotation breaks the parser; what is used can be used, and what closes says why.
func FuzzParse(f *testing.F) {
	for _, value := range []string{
		"", "true", "8m", "/$2", "10.0.0.0/8", "a/b", "https://$host/oauth2/auth", "digest", "*.x.test,~^www", "(", "-1",
		"https://a:b@c/", "99999999999999999999g", "error timeout http_502",
	} {
		f.Add(value, value, uint8(0))
	}
	all := All()
	f.Fuzz(func(t *testing.T, first, second string, which uint8) {
		for i, k := range all {
			other := all[(i+int(which))%len(all)]
			settings, verdicts := Parse(map[string]string{Prefix + k.Name: first, Prefix + other.Name: second})
			if !slices.IsSortedFunc(verdicts, func(a, b Verdict) int { return strings.Compare(a.Name, b.Name) }) {
				t.Fatalf("verdicts are not in order: %v", verdicts)
			}
			if settings.Rewrite != "" && strings.ContainsAny(settings.Rewrite, " \r\n?#") {
				t.Fatalf("rewrite-target %q is used", settings.Rewrite)
			}
			if settings.Redirect != nil && strings.ContainsAny(settings.Redirect.Location, " \r\n") {
				t.Fatalf("a redirect to %q is used", settings.Redirect.Location)
			}
			for _, v := range verdicts {
				if k, _ := Find(v.Name); v.Effect == Invalid && k.restricts && settings.Denied == "" {
					t.Fatalf("%s is invalid and does not close: %q, %q", v.Name, first, second)
				}
			}
		}
	})
}
