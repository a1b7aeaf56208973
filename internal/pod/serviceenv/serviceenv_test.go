package serviceenv

import (
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/cluster"
)

func service(namespace, name string, change func(*cluster.Service)) *cluster.Service {
	s := &cluster.Service{
		Key:        cluster.Key{Namespace: namespace, Name: name},
		ClusterIPs: []netip.Addr{netip.MustParseAddr("10.0.0.11")},
		Ports:      []cluster.Port{{Protocol: cluster.TCP, Number: 6379}},
	}
	if change != nil {
		change(s)
	}
	return s
}

func at(texts ...string) func(*cluster.Service) {
	return func(s *cluster.Service) {
		s.ClusterIPs = nil
		for _, text := range texts {
			s.ClusterIPs = append(s.ClusterIPs, netip.MustParseAddr(text))
		}
	}
}

func of(spec cluster.PodSpec, services ...*cluster.Service) (e Environment) {
	store := cluster.NewStore()
	store.Update(func(tx *cluster.Tx) {
		for _, s := range services {
			tx.Put(s)
		}
	})
	store.View(func(v *cluster.View) { e = Compute(v, "shop", &spec) })
	return e
}

func lines(e Environment) (all []string) {
	for _, v := range e.Variables {
		all = append(all, v.String())
	}
	return all
}

// TestPage checks the example of the page Services, "Environment variables".
func TestPage(t *testing.T) {
	page := strings.Fields(`
REDIS_PRIMARY_SERVICE_HOST=10.0.0.11
REDIS_PRIMARY_SERVICE_PORT=6379
REDIS_PRIMARY_PORT=tcp://10.0.0.11:6379
REDIS_PRIMARY_PORT_6379_TCP=tcp://10.0.0.11:6379
REDIS_PRIMARY_PORT_6379_TCP_PROTO=tcp
REDIS_PRIMARY_PORT_6379_TCP_PORT=6379
REDIS_PRIMARY_PORT_6379_TCP_ADDR=10.0.0.11`)
	slices.SortFunc(page, func(a, b string) int {
		nameA, _, _ := strings.Cut(a, "=")
		nameB, _, _ := strings.Cut(b, "=")
		return strings.Compare(nameA, nameB)
	})
	if got := lines(of(cluster.PodSpec{}, service("shop", "redis-primary", nil))); !slices.Equal(got, page) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(page, "\n"))
	}
}

func TestPorts(t *testing.T) {
	got := lines(of(cluster.PodSpec{}, service("shop", "dns", func(s *cluster.Service) {
		at("fd00::a", "10.0.0.10")(s)
		s.Ports = []cluster.Port{{Name: "dns-udp", Protocol: cluster.UDP, Number: 53}, {Name: "dns", Protocol: cluster.TCP, Number: 53}}
	})))
	want := strings.Fields(`
DNS_PORT=udp://[fd00::a]:53
DNS_PORT_53_TCP=tcp://[fd00::a]:53
DNS_PORT_53_TCP_ADDR=fd00::a
DNS_PORT_53_TCP_PORT=53
DNS_PORT_53_TCP_PROTO=tcp
DNS_PORT_53_UDP=udp://[fd00::a]:53
DNS_PORT_53_UDP_ADDR=fd00::a
DNS_PORT_53_UDP_PORT=53
DNS_PORT_53_UDP_PROTO=udp
DNS_SERVICE_HOST=fd00::a
DNS_SERVICE_PORT=53
DNS_SERVICE_PORT_DNS=53
DNS_SERVICE_PORT_DNS_UDP=53`)
	if !slices.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestCounting checks which Services get variables, by the hosts in the result.
func TestCounting(t *testing.T) {
	api := service("default", "kubernetes", at("10.96.0.1"))
	none := cluster.PodSpec{NoServiceLinks: true}
	for claim, test := range map[string]struct {
		spec     cluster.PodSpec
		services []*cluster.Service
		hosts    string
		pending  string
		master   bool
	}{
		"those of the namespace": {services: []*cluster.Service{service("shop", "a", nil), service("other", "b", nil), service("shop", "c", nil)},
			hosts: "A=10.0.0.11 C=10.0.0.11"},
		"the API server's of every namespace": {services: []*cluster.Service{api, service("default", "b", nil)}, hosts: "KUBERNETES=10.96.0.1", master: true},
		"without links, the API server's only": {spec: none, services: []*cluster.Service{api, service("shop", "a", nil)},
			hosts: "KUBERNETES=10.96.0.1", master: true},
		"the namespace's own of that name comes first": {services: []*cluster.Service{api, service("shop", "kubernetes", nil)}, hosts: "KUBERNETES=10.0.0.11", master: true},
		"without links it does not":                    {spec: none, services: []*cluster.Service{api, service("shop", "kubernetes", nil)}, hosts: "KUBERNETES=10.96.0.1", master: true},
		"only default's is the API server's":           {services: []*cluster.Service{service("other", "kubernetes", nil)}},
		"none without an address": {services: []*cluster.Service{
			service("shop", "headless", func(s *cluster.Service) { s.ClusterIPs, s.Headless = nil, true }),
			service("shop", "external", func(s *cluster.Service) { s.ClusterIPs, s.ExternalName = nil, "example.com" }),
			service("shop", "pending", at()), service("other", "pending", at())}, pending: "[shop/pending]"},
	} {
		e := of(test.spec, test.services...)
		var hosts []string
		for _, v := range e.Variables {
			if name, ok := strings.CutSuffix(v.Name, "_SERVICE_HOST"); ok {
				hosts = append(hosts, name+"="+v.Value)
			}
		}
		if got := strings.Join(hosts, " "); got != test.hosts {
			t.Errorf("%s: got %q, want %q", claim, got, test.hosts)
		}
		if got := fmt.Sprint(e.Pending); test.pending != "" && got != test.pending || test.pending == "" && len(e.Pending) > 0 {
			t.Errorf("%s: pending %s, want %s", claim, got, test.pending)
		}
		if e.KubernetesService != test.master {
			t.Errorf("%s: master %v", claim, e.KubernetesService)
		}
	}
}

// TestClash checks that two Services with the same variable names are reported, and
// that the result does not depend on the order of the model's map.
func TestClash(t *testing.T) {
	for range 20 {
		e := of(cluster.PodSpec{}, service("shop", "redis", nil), service("shop", "redis-service", at("10.0.0.12")))
		if len(e.Conflicts) != 1 || fmt.Sprint(e.Conflicts[0]) != "{REDIS_SERVICE_PORT [shop/redis shop/redis-service]}" {
			t.Fatalf("clashes %v", e.Conflicts)
		}
		if got := lines(e); !slices.Contains(got, "REDIS_SERVICE_PORT=tcp://10.0.0.12:6379") || len(got) != 13 {
			t.Fatalf("got %v", got)
		}
	}
	if e := of(cluster.PodSpec{}, service("shop", "redis", nil), service("shop", "sentinel", nil)); len(e.Conflicts) > 0 {
		t.Errorf("clashes %v of names that are different", e.Conflicts)
	}
}

// many returns an environment of a little more than size octets.
func many(size int) (e Environment) {
	for i, n := 0, 0; n < size; i++ {
		more := Environment{Variables: variables(service("shop", fmt.Sprintf("service-number-%d", i), nil))}
		e.Variables = append(e.Variables, more.Variables...)
		n += more.Size()
	}
	return e
}

// TestSize checks that Linux starts a program if the Size of its environment leaves
// room within the limit, and does not start it above the limit.
func TestSize(t *testing.T) {
	program, err := exec.LookPath("prlimit")
	if err != nil {
		t.Skip("no prlimit")
	}
	start := func(size int) error {
		e := many(size)
		cmd := exec.Command(program, "--stack=8388608", "sh", "-c", `exec "$0"`, "true")
		cmd.Env = append(lines(e), "PATH=/usr/bin:/bin")
		return cmd.Run()
	}
	if err := start(Limit - 64<<10); err != nil {
		t.Errorf("within the limit: %v", err)
	}
	if err := start(Limit + 64<<10); err == nil {
		t.Error("beyond the limit: started")
	}
}
