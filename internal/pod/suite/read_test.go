package suite

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRead(t *testing.T) {
	t.Parallel()
	s, err := Read("f.yaml", []byte(`
tests:
- from: shop/app=web
  to: [web:80, https://shop.example/]
  expect: connects
- {name: n, from: [a/b], to: https://a.example/, method: POST, headers: {X-Env: test}, expect: {status: 404}, by: HTTPRoute a/r}
- {from: a/b, to: a, expect: {resolves: [192.0.2.1, svc/a/b]}}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []Test{
		{
			File: "f.yaml", Line: 3, From: []string{"shop/app=web"}, To: []string{"web:80", "https://shop.example/"},
			Expect: Expect{Outcome: Connects},
		},
		{
			File: "f.yaml", Line: 6, Name: "n", From: []string{"a/b"}, To: []string{"https://a.example/"}, Method: "POST",
			Headers: []string{"X-Env: test"}, Expect: Expect{Outcome: Status, Status: 404}, By: "httproute a/r",
		},
		{
			File: "f.yaml", Line: 7, From: []string{"a/b"}, To: []string{"a"},
			Expect: Expect{Outcome: Resolves, Values: []string{"192.0.2.1", "svc/a/b"}},
		},
	}
	if diff := cmp.Diff(want, s.Tests); diff != "" {
		t.Errorf("tests (-want +got):\n%s", diff)
	}
}

// TestReadErrors checks that each error names the line, and that all are told.
func TestReadErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"":                          {`f: no tests; a suite begins with "tests:"`},
		"a: [":                      {"f:2: did not find expected node content"},
		"tests: []":                 {"f:1: no tests"},
		"[]":                        {"f:1: not a mapping of keys to values"},
		"tests: 1":                  {"f:1: tests: not a list"},
		"tests: [1]":                {"f:1: not a mapping of keys to values"},
		"test: []":                  {`f:1: unknown key "test"; did you mean tests?`},
		"tests:\n- {from: a/b}":     {"f:2: to is missing", "f:2: expect is missing"},
		"tests:\n- from: [1, {}, ]": {"f:2: from: not text"},
		"tests: []\n---\ntests: []": {"f:1: a second document, or what follows is no YAML; a file has one suite"},
		"tests:\n- {from: a, from: b, to: c:1, expect: refused}": {"f:2: key from given twice"},
		"tests:\n- from: a\n  to: b\n  expect: refuse": {
			"f:4: expect: \"refuse\" is not resolves, unresolved, connects, refused, dropped, backend, nor a mapping such as " +
				"{status: 404}; did you mean refused?",
		},
		"tests:\n- {from: a, to: b, expect: {status: 404, redirect: c}}": {"f:2: expect: give one outcome"},
		"tests:\n- {from: a, to: b, expect: {status: high}}":             {`f:2: expect.status: "high" is not a status from 100 to 599`},
		"tests:\n- {from: a, to: b, expect: {backend: []}}":              {"f:2: expect.backend: an empty list"},
		"tests:\n- {from: a, to: b:1, expect: connects, by: shop/web}": {
			`f:2: by: "shop/web" does not begin with a kind: write NetworkPolicy shop/web, or ClusterNetworkPolicy, httproute, ` +
				"grpcroute, ingress in its place",
		},
		"tests:\n- {from: a, to: b:1, expect: connects, by: networkpolicy web}": {
			`f:2: by: "networkpolicy web" has no namespace: write NetworkPolicy NAMESPACE/NAME`,
		},
		"tests:\n- {from: a, to: b:1, expect: connects, by: ClusterNetworkPolicy a/b}": {
			`f:2: by: "ClusterNetworkPolicy a/b" has no name: write ClusterNetworkPolicy NAME`,
		},
		"tests:\n- from: a\n  to: [b:1,\n    web.shop]\n  expect: connects": {
			`f:4: to: "web.shop" has no port, and is looked up only: write web.shop:80 to connect, or expect: resolves`,
		},
		"tests:\n- {from: a, to: web, expect: {status: 404}}": {
			`f:2: to: "web" is no URL, which has the outcome status: write http://web/`,
		},
		"tests:\n- {from: a, to: web:80, expect: {redirect: http://a/}}": {
			`f:2: to: "web:80" is no URL, which has the outcome redirect: write http://web.shop/`,
		},
		"tests:\n- {from: [a, outside/n1], to: web, expect: resolves}": {
			"f:2: from: outside/n1 is no Pod, and looks up no name: write a Pod, such as shop/web-0, or connect, to: NAME:PORT",
		},
		"tests:\n- {from: a, to: web, expect: resolves, by: NetworkPolicy a/b}": {
			"f:2: by: no policy and no route decides on a lookup: write to: NAME:PORT to connect",
		},
		"tests:\n- {from: a, to: b, headers: [x], expect: refused}": {"f:2: headers: not a mapping of names to values"},
	} {
		_, err := Read("f", []byte(text))
		if err == nil {
			t.Errorf("Read(%q) has no error, want %q", text, want)
			continue
		}
		if got := strings.Split(err.Error(), "\n"); !slices.Equal(got, want) {
			t.Errorf("Read(%q):\n%q, want\n%q", text, got, want)
		}
	}
}

// FuzzRead checks that no text makes Read panic.
func FuzzRead(f *testing.F) {
	f.Add("tests:\n- {from: a, to: b, expect: {status: 404}}")
	f.Add("tests:\n- &a {from: *a, to: [b, *a], expect: connects}")
	f.Add("tests: [{headers: {? [a] : b}}]")
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := Read("f", []byte(text)); s == nil && err == nil {
			t.Error("neither a suite nor an error")
		}
	})
}
