package alloc

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/cluster"
)

// Ranges of clusters with one and with two families.
const (
	dual     = "10.96.0.0/20 fd00:96::/112"
	dual6    = "fd00:96::/112 10.96.0.0/20"
	single   = "10.96.0.0/20"
	single6  = "fd00:96::/64"
	noStatic = "10.96.0.0/28"
)

// world is a Store that an Allocator completes.
type world struct {
	*testing.T
	store *cluster.Store
	alloc *Allocator
}

func newWorld(t *testing.T, ranges string) *world {
	t.Helper()
	w := &world{t, cluster.NewStore(), newAllocator(t, ranges)}
	w.store.Update(func(tx *cluster.Tx) { tx.SetFreshness(cluster.Live, cluster.Kinds()...) })
	return w
}

func newAllocator(tb testing.TB, ranges string) *Allocator {
	tb.Helper()
	var c Config
	for text := range strings.FieldsSeq(ranges) {
		c.Ranges = append(c.Ranges, netip.MustParsePrefix(text))
	}
	a, err := New(c)
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

// apply puts declared Services into a transaction and completes it.
func (w *world) apply(declared ...*cluster.Service) (refused []cluster.Refusal) {
	w.store.Update(func(tx *cluster.Tx) {
		for _, s := range declared {
			tx.Put(s)
		}
		refused = w.alloc.Complete(tx)
	})
	return refused
}

func (w *world) remove(names ...string) (refused []cluster.Refusal) {
	w.store.Update(func(tx *cluster.Tx) {
		for _, name := range names {
			tx.Delete(cluster.KindService, keyOf(name))
		}
		refused = w.alloc.Complete(tx)
	})
	return refused
}

func (w *world) get(name string) (s *cluster.Service) {
	w.store.View(func(v *cluster.View) { s = v.Service(keyOf(name)) })
	return s
}

func keyOf(name string) cluster.Key { return cluster.Key{Namespace: "shop", Name: name} }

// parse returns a Service described by words such as "type=NodePort ip=10.96.0.9
// ports=80,53/UDP:30053,https=443". By default it has a selector and port 80.
func parse(tb testing.TB, name, words string) *cluster.Service {
	tb.Helper()
	s := &cluster.Service{Key: keyOf(name), Selector: map[string]string{"app": name}, Spec: &cluster.ServiceSpec{Type: cluster.ClusterIP}}
	ports := "80"
	for word := range strings.FieldsSeq(words) {
		what, value, _ := strings.Cut(word, "=")
		switch what {
		case "type":
			s.Spec.Type = cluster.ServiceType(value)
		case "external":
			s.Spec.Type, s.ExternalName = cluster.ExternalName, value
		case "headless":
			s.Headless = true
		case "selectorless":
			s.Selector = nil
		case "ip":
			for text := range strings.SplitSeq(value, ",") {
				s.ClusterIPs = append(s.ClusterIPs, netip.MustParseAddr(text))
			}
		case "families":
			for text := range strings.SplitSeq(value, ",") {
				s.Spec.Families = append(s.Spec.Families, cluster.AddressType(text))
			}
		case "policy":
			s.Spec.FamilyPolicy = cluster.FamilyPolicy(value)
		case "ports":
			ports = value
		case "local":
			s.Spec.ExternalLocal = true
		case "health":
			s.Spec.HealthCheckNodePort = parsePort(tb, value)
		case "nonodeports":
			s.Spec.NoNodePorts = true
		case "label":
			s.Spec.Labels = map[string]string{"label": value}
		default:
			tb.Fatalf("unknown word %q", word)
		}
	}
	for text := range strings.SplitSeq(ports, ",") {
		parseServicePort(tb, s, text)
	}
	if !slices.ContainsFunc(s.Spec.NodePorts, func(p uint16) bool { return p != 0 }) {
		s.Spec.NodePorts = nil
	}
	return s
}

// parseServicePort adds a port such as "name=53/UDP:30053".
func parseServicePort(tb testing.TB, s *cluster.Service, text string) {
	tb.Helper()
	name, rest, ok := strings.Cut(text, "=")
	if !ok {
		name, rest = "", text
	}
	rest, nodePort, _ := strings.Cut(rest, ":")
	number, protocol, ok := strings.Cut(rest, "/")
	if !ok {
		protocol = "TCP"
	}
	s.Ports = append(s.Ports, cluster.Port{Name: name, Protocol: cluster.Protocol(protocol), Number: parsePort(tb, number)})
	port := uint16(0)
	if nodePort != "" {
		port = parsePort(tb, nodePort)
	}
	s.Spec.NodePorts = append(s.Spec.NodePorts, port)
}

func parsePort(tb testing.TB, text string) uint16 {
	tb.Helper()
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		tb.Fatal(err)
	}
	return uint16(n)
}

// describe returns the allocations of a Service: an address or node port that it held
// before is "kept", a chosen one is "new", a requested one is printed.
func (w *world) describe(s, declared, before *cluster.Service) string {
	if s == nil {
		return "none"
	}
	if before == nil {
		before = &cluster.Service{Spec: &cluster.ServiceSpec{}}
	}
	var words []string
	add := func(word string) {
		if word != "" {
			words = append(words, word)
		}
	}
	add(string(s.Spec.FamilyPolicy))
	var families []string
	for _, f := range s.Spec.Families {
		families = append(families, string(f))
	}
	add(strings.Join(families, ","))
	if s.Headless {
		add("None")
	}
	var ips []string
	for _, ip := range s.ClusterIPs {
		b := w.alloc.ranges[cluster.FamilyOf(ip)].Bands
		switch {
		case slices.Contains(before.ClusterIPs, ip):
			ips = append(ips, "kept")
		case slices.Contains(declared.ClusterIPs, ip) || !b.contains(ip) || !b.StaticEnd.Less(ip):
			ips = append(ips, ip.String())
		default:
			ips = append(ips, "new")
		}
	}
	add(strings.Join(ips, ","))
	port := func(number, declared uint16, before ...uint16) string {
		switch {
		case number == 0:
			return "-"
		case slices.Contains(before, number):
			return "kept"
		case number == declared || number < 30086 || number > 32767:
			return strconv.Itoa(int(number))
		}
		return "new"
	}
	if s.Spec.NodePorts != nil {
		var ports []string
		for i, number := range s.Spec.NodePorts {
			given := uint16(0)
			if declared.Spec.NodePorts != nil {
				given = declared.Spec.NodePorts[i]
			}
			ports = append(ports, port(number, given, before.Spec.NodePorts...))
		}
		add(strings.Join(ports, ","))
	}
	if n := s.Spec.HealthCheckNodePort; n != 0 {
		add("health=" + port(n, declared.Spec.HealthCheckNodePort, before.Spec.HealthCheckNodePort))
	}
	return strings.Join(words, " ")
}

// kubectlText returns refusals as kubectl prints them.
func kubectlText(refused []cluster.Refusal) string {
	var texts []string
	for _, r := range refused {
		text := r.Err.Error()
		if r.Field != "" {
			text = r.Field + ": " + text
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "; ")
}

// step is a declaration of a Service, in the words of parse, and the expected result, in
// those of describe, or the expected refusal.
type step struct{ declare, want string }

// runSteps applies the steps one after another.
func runSteps(t *testing.T, ranges string, steps []step) {
	t.Helper()
	w := newWorld(t, ranges)
	for i, step := range steps {
		before, declared := w.get("web"), parse(t, "web", step.declare)
		original := fmt.Sprintf("%+v %+v", *declared, *declared.Spec)
		got, want := kubectlText(w.apply(declared)), step.want
		if got == "" {
			got = w.describe(w.get("web"), declared, before)
		} else {
			got = "refused: " + got
			if s := w.get("web"); s != before {
				t.Errorf("step %d: %q: the Service is %+v, and was %+v", i, step.declare, s, before)
			}
		}
		if got != want {
			t.Errorf("step %d: %q:\n got %s\nwant %s", i, step.declare, got, want)
		}
		if now := fmt.Sprintf("%+v %+v", *declared, *declared.Spec); now != original {
			t.Errorf("step %d: the declared Service was modified in place, to %s", i, now)
		}
		if again := w.get("web"); kubectlText(w.apply()) == "" && w.get("web") != again {
			t.Errorf("step %d: %q: an empty transaction changed %+v to %+v", i, step.declare, again, w.get("web"))
		}
	}
}
