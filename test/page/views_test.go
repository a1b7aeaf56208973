package page

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestOverview verifies that what is wrong comes first, with its cure, and then how fresh everything is.
func TestOverview(t *testing.T) {
	t.Parallel()
	p := open(t, serve(t).URL, "")
	p.inOrder("Overview", "What is wrong", "5 things need attention", "part proxy", "It is not ready: the nftables table is not written yet.",
		"EndpointSlice objects are stale", "5 min", "the API server does not answer", "Cure:", "upstream 198.51.100.7:53",
		"node node-2", "2 policies name Pods of other nodes only",
		"What is wrong with objects", "error · service shop/search · spec.selector", "it selects no Pod", "Cure: set app: search",
		"3 more are not listed. There are 12 notes besides.", "Events over time", "Events per", "DNS queries", "Top failures", "serch.shop.svc.cluster.local.", "The Namespace has no such Service.",
		"In the cluster", "Endpoint slices", "57", "Sources", "Upstreams", "Nodes", "Parts of this process")
	p.until(`document.querySelector(".plot canvas")?.width > 0`)
	if n := p.number(`[...document.querySelector(".plot canvas").getContext("2d")
		.getImageData(0, 0, 2000, 300).data].filter((v) => v > 0).length`); n < 1000 {
		t.Errorf("the graph has %d values that are not zero, want a drawing", n)
	}
}

// TestService verifies that a Service's faults come first, and that endpoints say why they are not used.
func TestService(t *testing.T) {
	t.Parallel()
	s := serve(t)
	p := open(t, s.URL, "#/service/shop/web")
	p.inOrder("Service shop/web", "What is wrong", "HTTPRoute shop/api", "no listener has a hostname in common", "1 of 3 Pods is not ready for 12 minutes", "Cure: find out why: kubectl describe pod web-2",
		"port 81 has no name", "Explain a connection to it",
		"Names", "web.shop.svc.cluster.local.", "10.96.12.34", "Addresses", "LoadBalancer", "http 80/TCP", "that of any node",
		"Endpoints", "10.244.2.12", "not used", "containers with unready status: [web]", "10.244.1.10", "used",
		"Policies for incoming connections", "allows connections to port 8080", "they may connect to everything",
		"Routes", "HTTPRoute shop/api", "broken", "HTTPRoute shop/web", "ok", "Ingress shop/legacy", "other",
		"Last failures", "policy", "A policy denies the packet")
	if got := p.eval(`[...document.querySelectorAll("a.button")].map((a) => a.getAttribute("href")).join()`); got != "#/explain?target=web.shop%3A80" {
		t.Errorf("the button leads to %v, want the form with the Service filled in", got)
	}

	for claim, c := range map[string]struct {
		service map[string]any
		want    string
	}{
		"no endpoints": {map[string]any{}, "It has no endpoints: nothing answers at its addresses."},
		"endpoints that are not used": {map[string]any{"endpoints": []any{
			map[string]any{"address": "10.0.0.1", "pod": "web-0", "why": "not ready"}, map[string]any{"address": "10.0.0.2", "used": true},
		}}, "1 of 2 endpoints not used: not ready\n\nCure: find out why: kubectl describe pod web-0"},
		"endpoints that are not read": {map[string]any{"notRead": []any{
			map[string]any{"kind": "EndpointSlice", "why": "EndpointSlices are not read here; set admin.page to cluster"},
		}}, "Nothing is known to be wrong with it."},
		"policies that are not read": {map[string]any{"notRead": []any{
			map[string]any{"kind": "NetworkPolicy", "why": "NetworkPolicies are not read here; set admin.page to cluster"},
		}}, "NetworkPolicies are not read here; set admin.page to cluster."},
		"policies of the cluster that are not read": {map[string]any{"podsJudged": 2, "notRead": []any{
			map[string]any{"kind": "ClusterNetworkPolicy", "why": "ClusterNetworkPolicies are not read here"},
		}}, "Policies for incoming connections\n\nClusterNetworkPolicies are not read here."},
		"labels of namespaces that are not read": {map[string]any{
			"podsJudged": 2, "policiesIn": []any{map[string]any{"name": "web", "namespace": "shop", "href": "#/policy/shop/web"}},
			"notRead": []any{map[string]any{"kind": "Namespace", "why": "Namespaces are not read here"}},
		}, "Namespaces are not read here.\n\nPolicies for outgoing connections\n\nNamespaces are not read here."},
		"some Pods of many": {map[string]any{"podsJudged": 100, "more": map[string]any{"podsJudged": 1400}},
			"No policy selects the first 100 of its 1,500 Pods by name. The policies of the others are not known here."},
		"policies of some Pods of many": {map[string]any{
			"podsJudged": 100, "more": map[string]any{"podsJudged": 1400},
			"policiesIn": []any{map[string]any{"name": "web", "namespace": "shop", "href": "#/policy/shop/web"}},
		}, "These are the policies of the first 100 of its 1,500 Pods by name."},
		"rows that are left out": {map[string]any{
			"more": map[string]any{"endpoints": 9500}, "endpoints": []any{map[string]any{"address": "10.0.0.1", "used": true}},
		}, "9,500 more are not listed."},
	} {
		c.service["namespace"], c.service["name"], c.service["type"] = "shop", "web", "ClusterIP"
		s.answer("services/shop/web", c.service)
		p.visit("#/service/shop/web")
		if got := p.text("main"); !strings.Contains(got, c.want) {
			t.Errorf("%s: the page lacks %q:\n%s", claim, c.want, got)
		}
	}
}

// TestPod verifies the view of a Pod.
func TestPod(t *testing.T) {
	t.Parallel()
	p := open(t, serve(t).URL, "#/pod/shop/client")
	p.inOrder("Pod shop/client", "Nothing is known to be wrong", "Explain a connection from it", "Addresses", "10.244.1.9",
		"Node", "node-1", "ready", "How it looks up names", "search domains of the node", "ClusterFirst", "nameserver 10.96.0.10", "options ndots:5", "Services that select it", "shop/client",
		"it accepts connections from everywhere", "allows connections to the cluster DNS only")
}

// TestNotChecked verifies that the overview says what it could not read, and does not call it fine.
func TestNotChecked(t *testing.T) {
	t.Parallel()
	const policies, services = "ClusterNetworkPolicies are not read here", "Some fields of Services are not read here"
	notRead := func(kind, why string) []any { return []any{map[string]any{"kind": kind, "why": why}} }
	s := serve(t)
	s.answer("overview", map[string]any{"sources": []any{
		map[string]any{"kind": "Secret", "state": "absent"},
		map[string]any{"kind": "Pod", "state": "absent", "why": "pods is forbidden"},
	}})
	p := open(t, s.URL, "#/search?q=x")
	for claim, c := range map[string]struct {
		findings map[string]any
		wanted   []string
		unwanted string
	}{
		"all is checked": {map[string]any{"checked": true}, []string{"portolan check finds no faults of objects."}, "Not checked"},
		"some is checked": {
			map[string]any{"checked": true, "notRead": notRead("ClusterNetworkPolicy", policies)},
			[]string{"finds no faults in what is read", "Not checked: ClusterNetworkPolicy. " + policies + "."}, "no faults of objects",
		},
		"some is checked, and has a fault": {
			map[string]any{
				"checked": true, "notRead": notRead("Service", services), "counts": map[string]any{"error": 1},
				"items": []any{map[string]any{"severity": "error", "message": "it selects no Pod", "object": "service shop/web"}},
			},
			[]string{"it selects no Pod", "Not checked: Service. " + services + "."}, "no faults",
		},
		"nothing is checked": {
			map[string]any{"checked": false, "notRead": notRead("Service", services)}, []string{services + "."}, "no faults",
		},
	} {
		s.answer("findings", c.findings)
		p.visit("")
		p.inOrder("1 thing needs attention", "source Pod", "Pod objects are not read: pods is forbidden.", "Cure:")
		p.inOrder(c.wanted...)
		if got := p.text("main"); strings.Contains(got, c.unwanted) {
			t.Errorf("%s: the page says %q:\n%s", claim, c.unwanted, got)
		}
	}
}

// TestReadiness verifies that only what is known not to be ready is called bad.
func TestReadiness(t *testing.T) {
	t.Parallel()
	const bad, fine = "It is not ready", "Nothing is known to be wrong"
	s := serve(t)
	p := open(t, s.URL, "#/search?q=x")
	for claim, c := range map[string]struct {
		object        map[string]any
		state, wanted string
	}{
		"ready":     {map[string]any{"ready": true}, "ready", fine},
		"not ready": {map[string]any{"ready": false}, "not ready", bad},
		"not read":  {map[string]any{"ready": false, "unknown": true}, "not known", fine},
		"finished":  {map[string]any{"ready": false, "finished": true, "why": "it has finished"}, "finished", fine},
	} {
		c.object["name"], c.object["namespace"], c.object["node"] = "web-0", "shop", "n1"
		s.answer("pods/shop/web-0", c.object)
		s.answer("overview", map[string]any{"agents": []any{c.object}})
		views := []string{"#/pod/shop/web-0", ""}
		if claim == "finished" { // which nodes do not
			views = views[:1]
		}
		for _, view := range views {
			p.visit(view)
			p.wants(c.wanted)
			if got := p.text(".state"); got != c.state {
				t.Errorf("%s: %q has the state %q, want %q", claim, view, got, c.state)
			}
		}
	}
}

// TestPolicy verifies the view of a policy, and that it is reached from what is wrong and from where it applies.
func TestPolicy(t *testing.T) {
	t.Parallel()
	s := serve(t)
	p := open(t, s.URL, "#/policy/shop/web")
	p.inOrder("NetworkPolicy shop/web", "What is wrong", "no rule of it allows egress to the cluster DNS", "Cure: allow egress",
		"What it is for", "Pods app=web of the namespace", "what it denies is logged only", "Rules for incoming connections", "spec.ingress[0]",
		"allows", "10.0.0.0/8 except 10.1.0.0/16", "TCP 8080", "spec.ingress[1]", "anywhere", "all", "Rules for outgoing connections",
		"its Pods have no outgoing connections but those that other policies allow", "Pods that it applies to", "shop/web-0", "node-1")
	s.answer("policies/shop/long", map[string]any{
		"more": map[string]any{"rulesIn": 936}, "rulesIn": []any{map[string]any{
			"field": "spec.ingress[0]", "effect": "allows", "more": map[string]any{"peers": 1000, "ports": 1},
			"peers": []any{"10.0.0.0/8"}, "ports": []any{"TCP 80"},
		}},
	})
	p.visit("#/policy/shop/long")
	p.inOrder("spec.ingress[0]", "10.0.0.0/8", "and 1,000 more", "TCP 80", "and 1 more", "936 more are not listed.")
	p.visit("#/policy/guard")
	p.inOrder("ClusterNetworkPolicy guard", "Nothing is known to be wrong with it.", "all Pods of all namespaces", "in the tier Admin, with priority 5",
		"denies", "192.0.2.0/24", "It says nothing about outgoing connections.", "It applies to no Pod that runs.")
	for _, from := range []string{"", "#/service/shop/web"} {
		p.visit(from)
		p.until(`document.querySelector('main a[href="#/policy/shop/web"]')`)
	}
}

// TestExplain verifies that the form sends what the command takes, and that the first fault comes first.
func TestExplain(t *testing.T) {
	t.Parallel()
	s := serve(t)
	p := open(t, s.URL, "#/explain")
	p.eval(`document.getElementById("field-target").focus()`)
	p.press("http://serch.shop/", "\t", "shop/search-0", "\r")
	p.until(`document.querySelector(".way")`)
	p.inOrder("It does not work: no such name", "http://serch.shop/ from pod shop/search-0",
		"Name", "Service shop/serch does not exist; search does", `Cure: ask for "search", if that is what is meant`,
		"Service, once what comes before it is mended", "no endpoint is ready", "kubectl describe pod search-0",
		"The way, layer by layer", "Name", "broken", "no such name, after 8 packets", "Service", "broken", "Policy", "ok",
		"portolan explain http://serch.shop/ --from shop/search-0", "The whole explanation")
	p.eval(`document.querySelector("details:has(pre)").open = true`)
	p.wants("judged as if what comes before it were mended")
	if got := s.requests("explain"); len(got) != 1 || got[0] != "explain?target=http%3A%2F%2Fserch.shop%2F&from=shop%2Fsearch-0" {
		t.Errorf("the page asked %q, want one request with target and from", got)
	}

	s.answer("explain", failure(http.StatusBadRequest, `no pod shop/gone`))
	p.expected = []string{"400 (Bad Request)"}
	p.visit("#/explain?target=web&from=shop/gone&header=X-Env:%20a&header=X-B:%20c&method=POST&node=n&type=A&libc=musl")
	p.wants("No pod shop/gone.")
	if got := s.requests("libc=musl"); len(got) != 1 ||
		got[0] != "explain?target=web&from=shop%2Fgone&node=n&method=POST&type=A&libc=musl&header=X-Env%3A+a&header=X-B%3A+c" {
		t.Errorf("the page asked %q, want all fields", got)
	}
}

// TestGateways verifies that certificates that expire and conditions that are false come first.
func TestGateways(t *testing.T) {
	t.Parallel()
	s := serve(t)
	p := open(t, s.URL, "#/gateways")
	p.inOrder("What is wrong", "Gateway infra/old", "GatewayClass portolan does not exist",
		"Gateway infra/public, listener https", "Secret infra/other does not exist", "The certificate of Secret infra/www has expired on", "Cure: renew it",
		"listener partners", "The certificate of Secret infra/partners expires on",
		"Gateway infra/public", "192.0.2.10", "*.shop.example", "Accepted True", "expired", "www.shop.example", "all hosts", "expires soon",
		"IngressClass nginx", "served by another controller", "k8s.io/ingress-nginx", "It has no listeners.",
		"Routes", "shop/api", "no listener has", "www.shop.example", "80/HTTP", "infra/public http", "443/HTTPS", "shop/web", "port 80", "shop/search", "port 8080",
		"http://www.shop.example/")
	// A client outside would need a node where there are several.
	if got := p.eval(`document.querySelector('main a[href^="#/explain"]').getAttribute("href")`); got != "#/explain?target=http%3A%2F%2Fapi.shop.example%2F" {
		t.Errorf("the URL of a route leads to %v", got)
	}
	if got := p.number(`document.querySelectorAll('main a[href="#/service/shop/search"]').length`); got != 1 {
		t.Errorf("the table of routes has %d links to Service shop/search, want 1", got)
	}

	p.visit("#/gateways?route=shop/api")
	if got := s.requests("gateways?route"); len(got) != 1 || got[0] != "gateways?route=shop%2Fapi" {
		t.Errorf("the page asked %q, want the route", got)
	}
	p.inOrder("Route shop/api", "broken", "What is wrong", "Gateway infra/public", "All routes")

	one := map[string]any{"kind": "Gateway", "name": "public", "namespace": "infra"}
	s.answer("gateways", map[string]any{
		"gateways": []any{one}, "routes": []any{map[string]any{"kind": "HTTPRoute", "namespace": "shop", "name": "web", "state": "ok"}},
		"more": map[string]any{"gateways": 1500, "routes": 2345},
	})
	p.visit("#/gateways")
	p.inOrder("Gateway infra/public", "1,500 more are not listed.", "Routes", "shop/web", "2,345 more are not listed.")
	s.answer("gateways", map[string]any{"gateways": []any{}})
	p.visit("#/gateways")
	p.wants("There are no Gateways, and no IngressClasses with Ingresses.")
}

// TestTop verifies the table of failures, and that its filters are part of the address.
func TestTop(t *testing.T) {
	t.Parallel()
	s := serve(t)
	p := open(t, s.URL, "#/top?kind=query")
	p.inOrder("Counted since", "Subject", "serch.shop.svc.cluster.local.", "query", "no-service", "The Namespace has no such Service.", "5,120", "61 %",
		"10.244.2.7:5432/tcp", "policy", "2,048", "24 %", "< 1 %")
	p.eval(`(() => { const s = document.getElementById("field-by"); s.value = "client"; s.dispatchEvent(new Event("change", { bubbles: true })); })()`)
	p.until(`location.hash === "#/top?by=client&kind=query"`)
	p.settled()
	if got := s.requests("top?kind=query&by=client"); len(got) != 1 {
		t.Errorf("requests: %q, want one of top?kind=query&by=client", s.requests("top"))
	}
	s.answer("top", map[string]any{"items": nil})
	p.visit("#/top")
	p.wants("No failures have been seen.")
}

// TestTail verifies that events appear as they happen, that a pause holds them back, and that what is read out is not
// each of them.
func TestTail(t *testing.T) {
	t.Parallel()
	s := serve(t)
	further := make(chan string)
	s.answer("evidence", events(t, further))
	p := open(t, s.URL, "#/tail?kind=query&reason=nxdomain&client=10.244.1.9")
	p.until(`document.querySelectorAll("tbody tr").length === 120`)
	if got := s.requests("evidence"); len(got) != 1 || got[0] != "evidence?follow=true&kind=query&reason=nxdomain&client=10.244.1.9" {
		t.Errorf("requests: %q, want one with the filters", got)
	}
	event := func(subject string) string {
		return `{"time":"2026-01-02T03:04:05.678Z","kind":"query","reason":"nxdomain","client":"10.0.0.1","subject":"` + subject + `","weight":1}`
	}
	further <- event("first.example.")
	p.until(`document.querySelector("tbody tr").innerText.includes("first.example.")`)
	p.eval(`[...document.querySelectorAll("button")].find((b) => b.textContent === "Pause").click()`)
	further <- event("second.example.")
	p.until(`document.querySelector("main").innerText.includes("Paused. 1 event since then.")`)
	if strings.Contains(p.text("main"), "second.example.") {
		t.Error("an event was added to the table while it was paused")
	}
	for n := range 300 {
		further <- event(fmt.Sprintf("n%d.example.", n))
	}
	p.until(`document.querySelector("main").innerText.includes("Paused. 301 events since then.")`)
	p.eval(`[...document.querySelectorAll("button")].find((b) => b.textContent === "Resume").click()`)
	p.until(`document.querySelector("tbody tr").innerText.includes("n299.example.")`)
	if n := p.number(`document.querySelectorAll("tbody tr").length`); n != 200 {
		t.Errorf("the table has %d rows, want the last 200", n)
	}
	if got := p.eval(`document.querySelectorAll("tbody [aria-live], tbody[aria-live], [role=log]").length`); got != 0.0 {
		t.Errorf("%v parts of the table are live regions, want none: they would be read out without end", got)
	}
}

// TestTailExplains verifies where the links to explanations lead: to the URL with the scheme of the request, and
// nowhere for what the command explain does not take.
func TestTailExplains(t *testing.T) {
	t.Parallel()
	s := serve(t)
	further := make(chan string)
	s.answer("evidence", events(t, further))
	p := open(t, s.URL, "#/tail")
	for claim, c := range map[string]struct{ fields, want string }{
		"a request over TLS": {
			`"kind":"request","scheme":"https","subject":"shop.example/cart","detail":"GET 503 httproute/shop/web"`,
			"#/explain?target=https%3A%2F%2Fshop.example%2Fcart&method=GET",
		},
		"a request": {
			`"kind":"request","scheme":"http","subject":"shop.example/","detail":"POST 404"`,
			"#/explain?target=http%3A%2F%2Fshop.example%2F&method=POST",
		},
		"a request of an older process": {
			`"kind":"request","subject":"shop.example/","detail":"GET 404"`,
			"#/explain?target=http%3A%2F%2Fshop.example%2F&method=GET",
		},
		"a request without a host": {`"kind":"request","scheme":"http","subject":"/cart","detail":"GET 400"`, ""},
		"a connection of TCP":      {`"kind":"request","subject":"db.example","detail":"TCP tcproute/shop/db"`, ""},
		"a session of UDP":         {`"kind":"request","subject":"infra/public/dns","detail":"UDP"`, ""},
		"a drop": {
			`"kind":"drop","clientPod":"shop/web-0","subject":"10.244.2.7:5432/TCP"`,
			"#/explain?target=10.244.2.7%3A5432%2FTCP&from=shop%2Fweb-0",
		},
		"a drop in IPv6": {
			`"kind":"drop","clientPod":"shop/web-0","subject":"[fd00::7]:53/UDP"`,
			"#/explain?target=%5Bfd00%3A%3A7%5D%3A53%2FUDP&from=shop%2Fweb-0",
		},
		"a drop of ICMP":              {`"kind":"drop","clientPod":"shop/web-0","subject":"10.96.0.9/ICMP"`, ""},
		"a drop of ICMPv6":            {`"kind":"drop","clientPod":"shop/web-0","subject":"fd00::7/ICMPv6"`, ""},
		"a fragment without a port":   {`"kind":"drop","clientPod":"shop/web-0","subject":"10.96.0.9/UDP"`, ""},
		"a drop of an unknown client": {`"kind":"drop","subject":"10.244.2.7:5432/TCP"`, ""},
	} {
		further <- `{"time":"2026-01-02T03:04:05.678Z","reason":"` + claim + `","client":"10.0.0.1","weight":1,` + c.fields + `}`
		p.until(fmt.Sprintf(`document.querySelector("tbody tr b")?.textContent === %q`, claim))
		got := p.eval(`document.querySelector('tbody tr a[href^="#/explain"]')?.closest("tr") === document.querySelector("tbody tr")
			? document.querySelector('tbody tr a[href^="#/explain"]').getAttribute("href") : ""`)
		if got != c.want {
			t.Errorf("%s: the link leads to %q, want %q", claim, got, c.want)
		}
	}
}

// TestSearch verifies the box and the view of search.
func TestSearch(t *testing.T) {
	t.Parallel()
	s := serve(t)
	p := open(t, s.URL, "#/search?q=web")
	p.inOrder("Search for web", "shop/web", "Service", "2 of 3 endpoints", "shop/web-0", "Pod", "type more of the name")
	s.answer("search", map[string]any{"items": []any{}})
	p.visit("#/search?q=gone")
	p.wants("Nothing has this name or address.")
}

// TestFailures verifies what the page says when data are missing, late, or an error: one sentence, and the rest of the
// view is there.
func TestFailures(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.answer("overview", map[string]any{})
	s.answer("top", failure(http.StatusNotFound, "there is no evidence: admin.evidence.size is 0"))
	s.answer("evidence", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	p := open(t, s.URL, "")
	p.expected = []string{"404 (Not Found)", "401 (Unauthorized)", "500 (Internal Server Error)"}
	p.inOrder("Nothing is known to be wrong", "No events yet", "There is no evidence: admin.evidence.size is 0.",
		"Nothing has been counted.", "This process reads no objects.", "No Nodes are known.")

	for claim, c := range map[string]struct {
		answer http.Handler
		want   string
	}{
		"an error has a sentence": {failure(http.StatusNotFound, "there is no service shop/web"), "There is no service shop/web."},
		"HTML is no answer": {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprint(w, "<html>proxy</html>")
		}), "The server's answer is not JSON: is there a proxy in between?"},
		"an error of a proxy has its status": {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
		}), "The server answers 500 Internal Server Error."},
		"an empty object has no fields": {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprint(w, "{}")
		}), "It has no endpoints: nothing answers at its addresses."},
	} {
		s.answer("services/shop/web", c.answer)
		p.visit("#/service/shop/web")
		if got := p.text("main"); !strings.Contains(got, c.want) {
			t.Errorf("%s: the page lacks %q:\n%s", claim, c.want, got)
		}
	}
	p.visit("#/nowhere")
	p.wants(`There is no view "nowhere".`)
}

// TestLate verifies that a view that waits says so.
func TestLate(t *testing.T) {
	t.Parallel()
	s := serve(t)
	answer := make(chan struct{})
	s.answer("top", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		<-answer
		_, _ = fmt.Fprint(w, `{"items":[]}`)
	}))
	p := open(t, s.URL, "#/pod/shop/client")
	p.eval(`location.hash = "#/top"`)
	p.until(`document.querySelector("main").innerText.includes("Waiting for the server…")`)
	close(answer)
	p.settled()
	p.wants("No failures have been seen.")
}

// TestLogin verifies that the page asks for a token where the server wants one, and shows the view then.
func TestLogin(t *testing.T) {
	t.Parallel()
	s := serve(t)
	refuse := failure(http.StatusUnauthorized, "a token is needed, that of admin.tokenFile")
	s.answer("gateways", refuse)
	s.answer("login", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer right" {
			failure(http.StatusUnauthorized, "the token is not that of admin.tokenFile").ServeHTTP(w, r)
			return
		}
		s.answer("gateways", map[string]any{"gateways": []any{}})
		w.WriteHeader(http.StatusNoContent)
	}))
	p := open(t, s.URL, "#/gateways")
	p.expected = []string{"401 (Unauthorized)", "Password field is not contained in a form", "[DOM]"}
	p.wants("A token is needed, that of admin.tokenFile.")
	p.eval(`document.getElementById("token").focus()`)
	p.press("wrong", "\r")
	p.until(`document.querySelector("main").innerText.includes("The token is not that of admin.tokenFile.")`)
	p.eval(`document.getElementById("token").select()`)
	p.press("right", "\r")
	p.until(`document.querySelector("main").innerText.includes("There are no Gateways")`)
}
