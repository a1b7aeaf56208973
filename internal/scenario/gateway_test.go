package scenario_test

import (
	gocmp "cmp"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/compile"
	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/kube/manifest"
)

const (
	gatewayDir          = "../../testdata/gateway"
	gatewayCoverageFile = "../../docs/gateway-coverage.md"
)

// gatewayScenario is a file of testdata/gateway: objects that are added to testdata/gateway/cluster.yaml,
// requests with what serves them, and what is said of the objects.
//
//	cites: ID ...             statements of docs/gateway-coverage.md
//	-- objects.yaml --
//	-- problems --            what is reported about objects.yaml, one a line; none without it
//	-- requests --
//	METHOD http[s]://HOST[:PORT]/PATH[?QUERY] [at=ADDRESS] [sni=NAME] [client=NAME] [NAME=VALUE ...] -> ANSWER
//	-- exchanges --           what clients send and get through the proxy, see exchange
//	-- endpoints --           NS/SERVICE:PORT -> the addresses that requests for the port go to
//	-- verdicts --            all conditions but those that all is well, one a line; not compared without it
//	-- later.yaml --          objects.yaml as it is later
//	-- requests later --      as those without "later"; so are endpoints and verdicts
//
// An ANSWER is "KIND NS/NAME rule N" and the ports of Services that it may go to, or a status and a reason. With
// https, "certificate NAME, " precedes it, with the name in the certificate, for the host unless sni names
// another one. The client has the certificate client, if any. In manifests, "<key pair NAME>" is the data of a Secret
// with a certificate of the name, which is its own authority, and "<authority NAME>" that of a ConfigMap with it.
type gatewayScenario struct {
	name           string
	cites          []string
	objects, later []byte
	problems       []string
	exchanges      []exchange
	now, then      gatewayExpectations
}

// gatewayExpectations are what is expected of objects.
type gatewayExpectations struct{ requests, endpoints, verdicts []string }

func gatewayScenarios(t *testing.T) (all []gatewayScenario) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(gatewayDir, "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		s, err := parseGatewayScenario(file)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, *s)
	}
	return all
}

func parseGatewayScenario(file string) (*gatewayScenario, error) {
	archive, err := txtar.ParseFile(file)
	if err != nil {
		return nil, err
	}
	s := &gatewayScenario{name: strings.TrimSuffix(filepath.Base(file), ".txtar")}
	for line := range strings.Lines(string(archive.Comment)) {
		if ids, ok := strings.CutPrefix(line, "cites: "); ok {
			s.cites = append(s.cites, strings.Fields(ids)...)
		}
	}
	expected := 0
	for _, f := range archive.Files {
		lines := []string{}
		if text := strings.TrimSpace(string(f.Data)); text != "" {
			lines = strings.Split(text, "\n")
		}
		name, isLater := strings.CutSuffix(f.Name, " later")
		of := &s.now
		if isLater {
			of = &s.then
		}
		expected++
		switch name {
		case "objects.yaml":
			s.objects = f.Data
			expected--
		case "later.yaml":
			s.later = f.Data
			expected--
		case "problems":
			s.problems = lines
		case "requests":
			of.requests = lines
		case "exchanges":
			if s.exchanges, err = parseExchanges(lines); err != nil {
				return nil, err
			}
		case "endpoints":
			of.endpoints = lines
		case "verdicts":
			of.verdicts = lines
		default:
			return nil, fmt.Errorf("unknown file %s", f.Name)
		}
	}
	if len(s.cites) == 0 || expected == 0 {
		return nil, fmt.Errorf("it cites %v and expects %d things, want some", s.cites, expected)
	}
	return s, nil
}

// gatewayRun is a scenario that is compiled.
type gatewayRun struct {
	dir       string
	source    *manifest.Source
	store     *cluster.Store
	feed      *cluster.Feed
	compiler  *compile.Compiler
	table     *table.Table
	endpoints map[table.Upstream][]netip.AddrPort
}

// start reads the objects of a scenario, and compiles them.
func (s *gatewayScenario) start(t *testing.T) *gatewayRun {
	t.Helper()
	base, err := os.ReadFile(filepath.Join(gatewayDir, "cluster.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	r := &gatewayRun{dir: t.TempDir(), store: cluster.NewStore(), endpoints: make(map[table.Upstream][]netip.AddrPort)}
	if err := os.WriteFile(filepath.Join(r.dir, "cluster.yaml"), base, 0o600); err != nil {
		t.Fatal(err)
	}
	r.feed = r.store.Subscribe()
	r.source = manifest.New(manifest.Config{Path: r.dir, AllKinds: true, Store: r.store, Log: slog.New(slog.DiscardHandler)})
	r.compiler = compile.NewCompiler(compile.Config{
		GatewayController: "portolan.dev/gateway", IngressController: "portolan.dev/ingress", Node: "n1",
		Pool: gatewayPool, Publish: compile.Publish{Service: gatewayService},
	})
	if d := cmp.Diff(s.problems, r.apply(t, s.objects)); d != "" {
		t.Errorf("problems (-want +got)\n%s", d)
	}
	return r
}

// apply has the cluster have these objects, and compiles what changed. It returns what is reported about them.
func (r *gatewayRun) apply(t *testing.T, objects []byte) (problems []string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, "objects.yaml"), withKeyPairs(objects), 0o600); err != nil {
		t.Fatal(err)
	}
	report, err := r.source.Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range report.Problems {
		problems = append(problems, strings.TrimPrefix(p.Error(), r.dir+"/"))
	}
	changes := r.feed.Pending()
	var made compile.Output
	r.store.View(func(v *cluster.View) { made = r.compiler.Apply(v, &changes) })
	r.table = made.Table
	for up, addrs := range made.Endpoints {
		if r.endpoints[up] = addrs; addrs == nil {
			delete(r.endpoints, up)
		}
	}
	return problems
}

// check compares what is expected with what is compiled.
func (r *gatewayRun) check(t *testing.T, want *gatewayExpectations) {
	t.Helper()
	each := func(lines []string, answer func(string) (string, error)) {
		for _, line := range lines {
			of, want, ok := strings.Cut(line, " -> ")
			if !ok {
				t.Errorf("%q has no answer", line)
				continue
			}
			if got, err := answer(of); err != nil || got != want {
				t.Errorf("%s: %s, %v; want %s", of, got, err, want)
			}
		}
	}
	each(want.requests, func(of string) (string, error) { return answerTo(r.table, of) })
	each(want.endpoints, r.endpointsOf)
	if want.verdicts == nil {
		return
	}
	if d := cmp.Diff(want.verdicts, append([]string{}, verdictLines(r.compiler.Verdicts())...)); d != "" {
		t.Errorf("verdicts (-want +got)\n%s", d)
	}
}

// endpointsOf returns the addresses of a port "NS/SERVICE:PORT" that rules refer to.
func (r *gatewayRun) endpointsOf(port string) (string, error) {
	for up, addrs := range r.endpoints {
		if nameOf(up) != port {
			continue
		}
		var all []string
		for _, a := range addrs {
			all = append(all, a.String())
		}
		return gocmp.Or(strings.Join(all, " "), "none"), nil
	}
	return "", fmt.Errorf("no rule refers to %s", port)
}

// nameOf returns an Upstream as scenarios write it.
func nameOf(up table.Upstream) string {
	text := fmt.Sprintf("%s/%s:%d", up.Namespace, up.Service, up.Port)
	text += map[table.Protocol]string{table.H2C: "/h2c", table.RawTCP: "/tcp", table.RawUDP: "/udp"}[up.Protocol]
	if up.Secure() {
		text += "+" + gocmp.Or(up.TLS.Value().ServerName, up.TLS.Value().Broken)
	}
	return text
}

// TestGateways checks the scenarios in testdata/gateway.
func TestGateways(t *testing.T) {
	t.Parallel()
	scenarios := gatewayScenarios(t)
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			r := s.start(t)
			r.check(t, &s.now)
			if len(s.exchanges) > 0 {
				r.exchange(t, s.exchanges)
			}
			if s.later != nil {
				for _, p := range r.apply(t, s.later) {
					t.Errorf("later: %s", p)
				}
				r.check(t, &s.then)
			}
		})
	}
	const promised = 150
	if len(scenarios) < promised {
		t.Errorf("%d scenarios, want at least %d", len(scenarios), promised)
	}
}

// answerTo returns what serves a request, as scenarios write it.
func answerTo(t *table.Table, request string) (string, error) {
	words := strings.Fields(request)
	if len(words) < 2 {
		return "", fmt.Errorf("%q is not \"METHOD URL [NAME=VALUE ...]\"", request)
	}
	if words[0] == "TCP" || words[0] == "TLS" || words[0] == "UDP" {
		return streamTo(t, words[0], words[1])
	}
	u, err := url.Parse(words[1])
	if err != nil {
		return "", err
	}
	var socket table.Socket
	port, err := strconv.ParseUint(gocmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme]), 10, 16)
	if err != nil {
		return "", err
	}
	socket.Port = uint16(port)
	header, serverName, client := make(http.Header), u.Hostname(), ""
	for _, field := range words[2:] {
		switch name, value, _ := strings.Cut(field, "="); name {
		case "at":
			socket.Addr, err = netip.ParseAddr(value)
		case "sni":
			serverName = value
		case "client":
			client = value
		default:
			header.Add(name, value)
		}
	}
	if err != nil {
		return "", err
	}
	path, err := table.Normalize(u.EscapedPath())
	if err != nil {
		return "", err
	}
	at := t.Port(socket)
	if at == nil {
		return "no port", nil
	}
	begins, ok := handshake(at, u.Scheme, serverName, u.Hostname())
	if !ok {
		return begins, nil
	}
	if u.Scheme == "https" && !acceptsClient(at, serverName, client) {
		return begins + "client refused", nil
	}
	_, found := at.Find(u.Hostname(), &table.Request{Method: words[0], Path: path, Query: u.RawQuery, Header: header})
	if found == nil {
		return begins + "404", nil
	}
	return begins + ruleText(found.Rule), nil
}

// streamTo returns where a connection or a datagram to a port goes, "NAME:PORT" with the server name of TLS, as scenarios
// write it: of TLS first who has the certificate.
func streamTo(t *table.Table, protocol, address string) (string, error) {
	name, number, err := net.SplitHostPort(address)
	if err != nil {
		return "", err
	}
	port, err := strconv.ParseUint(number, 10, 16)
	if err != nil {
		return "", err
	}
	socket := table.Socket{Port: uint16(port)}
	if protocol == "UDP" {
		socket.Transport = table.UDP
	}
	at := t.Port(socket)
	switch {
	case at == nil:
		return "no port", nil
	case (at.Opening() == table.Handshake) != (protocol == "TLS") || at.Opening() == table.Plain:
		return "the port does not take " + protocol, nil
	}
	l, rule := at.Stream(name)
	switch {
	case l == nil:
		return "no listener", nil
	case l.Mode == table.Requests:
		return "requests", nil
	case rule == nil:
		return "no route", nil
	case l.Mode == table.Passthrough:
		return "passed through, " + ruleText(rule), nil
	case protocol == "TLS":
		begins, _ := handshake(at, "https", name, name)
		return begins + ruleText(rule), nil
	}
	return ruleText(rule), nil
}

// ruleText returns what a rule does.
func ruleText(rule *table.Rule) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s rule %d", rule.Object, rule.Index)
	if rule.Status != 0 {
		fmt.Fprintf(&text, ": %d %s", rule.Status, rule.Reason)
		return text.String()
	}
	for _, b := range rule.Backends {
		if b.Upstream == (table.Upstream{}) {
			text.WriteString(" 500")
		} else {
			text.WriteString(" " + nameOf(b.Upstream))
		}
		if len(rule.Backends) > 1 {
			fmt.Fprintf(&text, "*%d", b.Weight)
		}
	}
	return text.String()
}

// verdictLines returns what is said of objects, but that all is well, in order.
func verdictLines(v *compile.Verdicts) (all []string) {
	well := []string{"Accepted=True Accepted", "ResolvedRefs=True ResolvedRefs", "Conflicted=False NoConflicts"}
	add := func(of string, conditions ...cluster.Condition) {
		for _, c := range conditions {
			text := fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Reason)
			if slices.Contains(well, text) {
				continue
			}
			if c.Message != "" {
				text += ": " + c.Message
			}
			all = append(all, of+": "+text)
		}
	}
	programmed := func(of string, c *cluster.Condition, others []cluster.Condition) {
		follows := []string{"see the other conditions", "no listener is programmed"} // says no more than others
		for _, o := range others {
			follows = append(follows, o.Message)
		}
		if c != nil && !slices.Contains(follows, c.Message) {
			add(of, *c)
		}
	}
	for key, class := range v.Classes {
		add("gatewayclass "+key.String(), class.Conditions...)
	}
	for kind, of := range map[string]map[cluster.Key]*compile.GatewayVerdict{"gateway": v.Gateways, "listenerset": v.Sets} {
		for key, g := range of {
			name := kind + " " + key.String()
			add(name, g.Conditions...)
			programmed(name, g.Unprogrammed, g.Conditions)
			for _, addr := range slices.Concat(g.Addresses, g.Named) {
				if addr.IsValid() {
					all = append(all, name+": has "+addr.String())
				}
			}
			for _, l := range g.Listeners {
				name := name + " " + l.Name
				all = append(all, fmt.Sprintf("%s: %d routes%s", name, l.AttachedRoutes, kindsText(l.SupportedKinds)))
				add(name, l.Conditions...)
				programmed(name, l.Unprogrammed, l.Conditions)
			}
		}
	}
	for key, ancestors := range v.Policies {
		for _, of := range ancestors {
			add("backendtlspolicy "+key.String()+" at gateway "+of.Parent.Namespace+"/"+of.Parent.Name, of.Conditions...)
		}
	}
	for key, ancestors := range v.TrafficPolicies {
		for _, of := range ancestors {
			add("xbackendtrafficpolicy "+key.String()+" at gateway "+of.Parent.Namespace+"/"+of.Parent.Name, of.Conditions...)
		}
	}
	for key, ancestors := range v.RoutePolicies {
		for _, of := range ancestors {
			name := strings.ToLower(of.Parent.Kind) + " " + of.Parent.Namespace + "/" + of.Parent.Name
			add("routepolicy "+key.String()+" at "+name, of.Conditions...)
		}
	}
	for key, parents := range v.Routes {
		for _, p := range parents {
			add(fmt.Sprintf("%s at %s", key, parentText(&p.Parent)), p.Conditions...)
		}
	}
	for key, i := range v.Ingresses {
		for _, p := range i.Problems {
			all = append(all, fmt.Sprintf("ingress %s: %s: %s", key, p.Field, p.Reason))
		}
	}
	for _, s := range v.Shadows {
		at := ""
		if s.Hostname != "" {
			at = " at " + s.Hostname
		}
		all = append(all, fmt.Sprintf("%s rule %d%s is shadowed by %s", s.Route, s.Index, at, s.By))
	}
	slices.Sort(all)
	return all
}

// kindsText returns the kinds that a listener supports, unless they are those that it has by default.
func kindsText(kinds []cluster.GroupKind) string {
	var names []string
	for _, k := range kinds {
		names = append(names, k.Kind)
	}
	switch text := strings.Join(names, ", "); text {
	case "HTTPRoute, GRPCRoute":
		return ""
	case "":
		return " of no kind"
	default:
		return " of " + text
	}
}

// parentText returns a parentRef.
func parentText(p *cluster.ParentRef) string {
	text := fmt.Sprintf("%s %s/%s", strings.ToLower(p.Kind), p.Namespace, p.Name)
	if p.Section != "" {
		text += " section " + p.Section
	}
	if p.Port != 0 {
		text += fmt.Sprintf(" port %d", p.Port)
	}
	return text
}

// TestGatewayCoverage checks that a scenario cites each statement of docs/gateway-coverage.md, and that each
// citation is of a statement.
func TestGatewayCoverage(t *testing.T) {
	cited := make(map[string][]string)
	for _, s := range gatewayScenarios(t) {
		for _, id := range s.cites {
			cited[id] = append(cited[id], s.name)
		}
	}
	checkCoverage(t, gatewayCoverageFile, cited)
}
