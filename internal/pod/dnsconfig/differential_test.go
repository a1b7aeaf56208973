package dnsconfig

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/dns/resolvconf"
	"portolan.dev/portolan/internal/pod/dnsconfig/podrand"
)

// generated is a random Pod on a random node. text is the node's resolv.conf.
type generated struct {
	pod  PodSettings
	node NodeSettings
	text string
}

// TestDifferential compares Resolve with the oracle below for generated Pods and nodes.
// It checks that each policy and each limit occurred.
func TestDifferential(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 1))
	met := make(map[string]int)
	for i := range 2000 {
		g := generate(random)
		got := Resolve(g.pod, g.node)
		want, events := oracle(g)
		if text := got.Config.String(); text != want {
			t.Fatalf("case %d: Resolve(%+v, %+v) of node's\n%s=\n%swant\n%s", i, g.pod, g.node, g.text, text, want)
		}
		if reasons := eventsOf(got.Warnings); !slices.Equal(reasons, events) {
			t.Fatalf("case %d: Resolve(%+v) has events %v, want %v", i, g.pod, reasons, events)
		}
		if again := Resolve(g.pod, g.node).Config.String(); again != want {
			t.Fatalf("case %d: Resolve(%+v) is another the second time: %q, was %q", i, g.pod, again, want)
		}
		met[fmt.Sprintf("%s, hostNetwork %v", g.pod.Policy, g.pod.HostNetwork)]++
		for _, event := range events {
			met[event]++
		}
	}
	if len(met) < 18+3 {
		t.Errorf("met only %v", met)
	}
	for what, times := range met {
		if times < 20 {
			t.Errorf("%s: %d times", what, times)
		}
	}
}

// eventsOf returns the events of warnings as a sorted set, with separate events for
// nameservers and searches.
func eventsOf(warnings []Warning) []string {
	var list []string
	for _, w := range warnings {
		switch {
		case w.Reason == DNSConfigForming && strings.Contains(w.Message, "nameserver"):
			list = append(list, w.Reason+" nameservers")
		case w.Reason == DNSConfigForming:
			list = append(list, w.Reason+" searches")
		case w.Reason != "":
			list = append(list, w.Reason)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func generate(random *rand.Rand) generated {
	servers := []string{"10.0.0.10", "192.0.2.1", "192.0.2.2", "2001:db8::1", "fd00::a", "::1"}
	optionWords := []string{"ndots:1", "ndots:2", "ndots:5", "edns0", "rotate", "timeout:1", "attempts:3", "ndots"}
	var g generated
	g.pod = PodSettings{
		Namespace:   podrand.Pick(random, "shop", "default", "a"),
		Name:        "web",
		OS:          podrand.Pick(random, "", Linux, Windows),
		HostNetwork: random.IntN(3) == 0,
		Policy: podrand.Pick(random, "", Default, ClusterFirst, ClusterFirstWithHostNet, None, Custom,
			ClusterFirstWithAutopath, "clusterFirstWithAutopath", "Nearest"),
	}
	if random.IntN(3) > 0 {
		g.pod.DNSConfig = &DNSConfig{
			Nameservers: podrand.Several(random, 4, servers...),
			Searches:    podrand.Searches(random),
			Options:     options(podrand.Several(random, 4, optionWords...)...),
		}
	}
	g.node = NodeSettings{
		ClusterDomain: podrand.Pick(random, "cluster.local", "example", ""),
		Addrs:         podrand.Several(random, 2, podrand.Addrs("192.0.2.7", "2001:db8::7")...),
	}
	if random.IntN(5) > 0 {
		g.node.ClusterDNS = podrand.Several(random, 4, podrand.Addrs("10.0.0.10", "fd00::a", "10.0.0.11")...)
	}
	if random.IntN(5) > 0 {
		for _, server := range podrand.Several(random, 4, servers...) {
			g.text += "nameserver " + server + "\n"
		}
		if list := podrand.Searches(random); len(list) > 0 {
			g.text += "search " + strings.Join(list, " ") + "\n"
		}
		if words := podrand.Several(random, 3, optionWords...); len(words) > 0 {
			g.text += "options " + strings.Join(words, " ") + "\n"
		}
		config, _ := ParseNode(g.text)
		g.node.ResolvConf = &config
	}
	return g
}

// oracle returns the text of the Pod's resolv.conf and the kubelet's events. It follows
// the rules of the documentation line by line and shares no code with Resolve.
func oracle(g generated) (text string, events []string) {
	event := func(name string) {
		if !slices.Contains(events, name) {
			events = append(events, name)
		}
	}
	servers, searches, words := oracleNode(g)

	// Apply the policy.
	policy := string(g.pod.Policy)
	switch policy {
	case "", "Nearest":
		if policy == "" && g.pod.HostNetwork {
			policy = "Default"
		} else {
			policy = "ClusterFirst"
		}
	case "Custom":
		policy = "None"
	case "ClusterFirst", "ClusterFirstWithAutopath", "clusterFirstWithAutopath":
		if g.pod.HostNetwork {
			policy = "Default"
		}
	}
	if strings.HasPrefix(strings.ToLower(policy), "cluster") && len(g.node.ClusterDNS) == 0 {
		event("MissingClusterDNS")
		policy = "Default"
	}
	switch policy {
	case "None":
		servers, searches, words = nil, nil, nil
	case "Default":
		if g.node.ResolvConf == nil {
			servers, searches, words = nil, []string{"."}, nil
			for _, addr := range g.node.Addrs {
				servers = append(servers, map[bool]string{true: "127.0.0.1", false: "::1"}[addr.Is4()])
			}
			if servers == nil {
				servers = []string{"127.0.0.1"}
			}
		}
	default:
		servers, words = nil, []string{"ndots:5"}
		for _, addr := range g.node.ClusterDNS {
			servers = append(servers, addr.String())
		}
		if domain := g.node.ClusterDomain; domain != "" {
			if strings.HasSuffix(policy, "Autopath") {
				searches = []string{fmt.Sprintf("search.%s.%s.ap.k8s.io", g.pod.Namespace, domain)}
			} else {
				cluster := fmt.Sprintf("%s.svc.%s svc.%s %s", g.pod.Namespace, domain, domain, domain)
				searches = first(append(strings.Fields(cluster), searches...))
			}
		}
	}

	// Merge dnsConfig.
	if c := g.pod.DNSConfig; c != nil {
		servers = first(append(servers, c.Nameservers...))
		searches = first(append(searches, c.Searches...))
		for _, o := range c.Options {
			words = oracleOption(words, o)
		}
	}

	// Apply the limits.
	if len(servers) > 3 {
		servers = servers[:3]
		event("DNSConfigForming nameservers")
	}
	whole := len(searches)
	searches = searches[:min(32, whole)]
	searches = slices.DeleteFunc(slices.Clone(searches), func(s string) bool { return len(s) > 253 })
	for len(strings.Join(searches, " ")) > 2048 {
		searches = searches[:len(searches)-1]
	}
	if len(searches) < whole {
		event("DNSConfigForming searches")
	}
	if len(servers) > 0 {
		text += "nameserver " + strings.Join(servers, "\nnameserver ") + "\n"
	}
	if len(searches) > 0 {
		text += "search " + strings.Join(searches, " ") + "\n"
	}
	if len(words) > 0 {
		text += "options " + strings.Join(words, " ") + "\n"
	}
	slices.Sort(events)
	return text, events
}

// oracleNode parses the node's resolv.conf into three lists of words.
func oracleNode(g generated) (servers, searches, words []string) {
	for line := range strings.SplitSeq(g.text, "\n") {
		fields := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "nameserver"):
			servers = append(servers, fields[1])
		case strings.HasPrefix(line, "search"):
			for _, field := range fields[1:] {
				if field != "." {
					searches = append(searches, strings.TrimSuffix(field, "."))
				}
			}
		case strings.HasPrefix(line, "options"):
			for _, field := range fields[1:] {
				name, value, _ := strings.Cut(field, ":")
				words = oracleOption(words, resolvconf.Option{Name: name, Value: value})
			}
		}
	}
	return servers, searches, words
}

// oracleOption replaces the option of the same name, or appends the option.
func oracleOption(words []string, o resolvconf.Option) []string {
	word := o.Name
	if o.Value != "" {
		word += ":" + o.Value
	}
	for i, old := range words {
		if old == o.Name || strings.HasPrefix(old, o.Name+":") {
			words[i] = word
			return words
		}
	}
	return append(words, word)
}

// first removes duplicates and keeps the first of each.
func first(list []string) []string {
	var kept []string
	for i, s := range list {
		if slices.Index(list, s) == i {
			kept = append(kept, s)
		}
	}
	return kept
}

// TestResolveLeavesItsArgumentsAlone checks that Resolve neither changes nor retains
// its arguments.
func TestResolveLeavesItsArgumentsAlone(t *testing.T) {
	text := "nameserver 10.1.1.10\nsearch a. b\noptions ndots:1 rotate\n"
	config, _, err := resolvconf.Parse(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	n := NodeSettings{ResolvConf: &config, ClusterDNS: []netip.Addr{netip.MustParseAddr("::ffff:10.0.0.10")}, ClusterDomain: "z"}
	for _, policy := range []DNSPolicy{Default, ClusterFirst} {
		p := PodSettings{Policy: policy, DNSConfig: &DNSConfig{Options: options("ndots:9", "x:1"), Searches: []string{"c."}}}
		result := Resolve(p, n)
		for i := range result.Config.Options {
			result.Config.Options[i].Name = "changed"
		}
		for i := range result.Config.Searches {
			result.Config.Searches[i] = "changed"
		}
		if got := config.String(); got != text {
			t.Errorf("after Resolve(%+v), the node's resolv.conf = %q, was %q", p, got, text)
		}
		if c := p.DNSConfig; c.Options[0].String() != "ndots:9" || c.Searches[0] != "c." {
			t.Errorf("after Resolve, dnsConfig = %+v", c)
		}
	}
}
