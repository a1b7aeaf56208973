package verdicts

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"portolan.dev/portolan/internal/support/testcert"
)

// object is an object of Kubernetes.
type object map[string]any

// list is a list in an object.
type list []any

// randomCluster is a cluster that is drawn.
type randomCluster struct {
	*rand.Rand
	objects  []object
	pods     []*pod
	services []*service
	hosts    []string // of routes, without those with a wildcard
}

// pod is a Pod of it.
type pod struct {
	namespace, name, node string
	addrs                 []netip.Addr
	labels                map[string]string
	http                  int // the number of its port named http
	ready                 bool
}

func (p *pod) String() string { return p.namespace + "/" + p.name }

// service is a Service of it.
type service struct {
	namespace, name string
	addrs           []netip.Addr // of the cluster
	outside         []netip.Addr // external IPs, and those of a load balancer
	ports           []servicePort
	selector        map[string]string
	headless        bool
	alias           string // externalName
	affinity        bool
	endpoints       int // that are ready
}

func (s *service) String() string { return s.namespace + "/" + s.name }

// servicePort is a port of a Service.
type servicePort struct {
	number, nodePort int
	udp              bool
}

// What clusters are made of.
var (
	nodeNames  = []string{"n1", "n2"}
	namespaces = []string{"blue", "green", "red"}
	apps       = []string{"a", "b", "c"}
	tiers      = []string{"front", "back"}
	// clients are addresses outside, and blocks what they and others are in.
	clients = []netip.Addr{
		netip.MustParseAddr("203.0.113.9"), netip.MustParseAddr("203.0.113.130"), netip.MustParseAddr("192.0.2.77"),
	}
	blocks = [][]string{ // a block, and exceptions of it
		{"0.0.0.0/0", "203.0.113.128/25", "10.244.2.0/24"},
		{"203.0.113.0/24", "203.0.113.128/25"},
		{"192.0.2.0/24"},
		{"10.244.0.0/16", "10.244.1.0/24"},
		{"10.244.2.0/25"},
		{"198.51.100.0/24", "198.51.100.12/32"},
		{"fd00:10:244::/48", "fd00:10:244:2::/64"},
		{"::/0"},
	}
	servers     = []netip.AddrPort{netip.MustParseAddrPort("203.0.113.80:80"), netip.MustParseAddrPort("192.0.2.200:443")}
	gatewayAddr = netip.MustParseAddr("192.0.2.10")
)

// The ports of Pods: http has one of two numbers.
const (
	metricsPort = 9090
	statsPort   = 8125
)

// draw draws a cluster by a seed.
func draw(t *testing.T, seed uint64) *randomCluster {
	t.Helper()
	c := &randomCluster{Rand: rand.New(rand.NewPCG(seed, 25))}
	for i, name := range nodeNames {
		c.add("v1", "Node", object{"name": name}, object{
			"spec": object{"podCIDRs": list{fmt.Sprintf("10.244.%d.0/24", i+1), fmt.Sprintf("fd00:10:244:%d::/64", i+1)}},
			"status": object{"addresses": list{
				object{"type": "InternalIP", "address": fmt.Sprintf("198.51.100.1%d", i+1)},
				object{"type": "InternalIP", "address": fmt.Sprintf("2001:db8::1%d", i+1)},
			}},
		})
	}
	for _, name := range append(slices.Clone(namespaces), "kube-system", "infra") {
		labels := object{"kubernetes.io/metadata.name": name, "env": pick(c, "prod", "test")}
		c.add("v1", "Namespace", object{"name": name, "labels": labels}, nil)
	}
	c.system()
	for _, namespace := range namespaces {
		for i := range 3 + c.IntN(3) {
			c.pod(namespace, fmt.Sprintf("p%d", i), map[string]string{"app": pick(c, apps...), "tier": pick(c, tiers...)})
		}
	}
	for _, namespace := range namespaces {
		for i := range 3 + c.IntN(3) {
			c.service(namespace, fmt.Sprintf("s%d", i))
		}
	}
	c.policies()
	c.routes(t)
	return c
}

// pick draws one.
func pick[T any](c *randomCluster, of ...T) T { return of[c.IntN(len(of))] }

// chance reports whether one of n comes.
func (c *randomCluster) chance(n int) bool { return c.IntN(n) == 0 }

// add adds an object, with more of its fields.
func (c *randomCluster) add(version, kind string, metadata, more object) {
	o := object{"apiVersion": version, "kind": kind, "metadata": metadata}
	maps.Copy(o, more)
	c.objects = append(c.objects, o)
}

// write writes the manifests.
func (c *randomCluster) write(t *testing.T, dir string) {
	t.Helper()
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	for _, o := range c.objects {
		if err := enc.Encode(o); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "cluster.yaml"), b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// system adds the cluster DNS and the gateway.
func (c *randomCluster) system() {
	dns := c.pod("kube-system", "dns", map[string]string{"k8s-app": "kube-dns"})
	c.add("v1", "Service", object{"namespace": "kube-system", "name": "kube-dns"}, object{"spec": object{
		"clusterIP": "10.96.0.10", "selector": dns.labels,
		"ports": list{
			object{"name": "dns", "port": 53, "protocol": "UDP"}, object{"name": "dns-tcp", "port": 53, "protocol": "TCP"},
		},
	}})
	c.slice("kube-system", "kube-dns", "4", list{
		object{"name": "dns", "port": 53, "protocol": "UDP"}, object{"name": "dns-tcp", "port": 53, "protocol": "TCP"},
	}, []*pod{dns})
	gateway := c.pod("infra", "gateway", map[string]string{"app": "gateway"})
	c.add("v1", "Service", object{"namespace": "infra", "name": "gateway"}, object{
		"spec": object{
			"type": "LoadBalancer", "clusterIP": "10.96.0.80", "selector": gateway.labels, "allocateLoadBalancerNodePorts": false,
			"ports": list{
				object{"name": "http", "port": 80, "targetPort": 8080}, object{"name": "https", "port": 443, "targetPort": 8443},
			},
		},
		"status": object{"loadBalancer": object{"ingress": list{object{"ip": gatewayAddr.String()}}}},
	})
	c.slice("infra", "gateway", "4", list{
		object{"name": "http", "port": 8080}, object{"name": "https", "port": 8443},
	}, []*pod{gateway})
	c.pods = nil // they are no clients and no targets
}

// pod adds a Pod.
func (c *randomCluster) pod(namespace, name string, labels map[string]string) *pod {
	i := len(c.objects)
	node := c.IntN(len(nodeNames))
	p := &pod{
		namespace: namespace, name: name, labels: labels, node: nodeNames[node], http: pick(c, 8080, 8081), ready: !c.chance(5),
		addrs: []netip.Addr{
			netip.MustParseAddr(fmt.Sprintf("10.244.%d.%d", node+1, 10+i)),
			netip.MustParseAddr(fmt.Sprintf("fd00:10:244:%d::%d", node+1, 10+i)),
		},
	}
	container := object{"name": "main", "image": "registry.example/main:1"}
	if labels["app"] != "gateway" && labels["k8s-app"] == "" {
		container["ports"] = list{
			object{"name": "http", "containerPort": p.http}, object{"name": "metrics", "containerPort": metricsPort},
			object{"name": "stats", "containerPort": statsPort, "protocol": "UDP"},
		}
	} else {
		p.ready = true
	}
	spec := object{"nodeName": p.node, "containers": list{container}}
	if c.chance(2) {
		spec["hostname"], spec["subdomain"] = name, "s0"
	}
	ready := "True"
	if !p.ready {
		ready = "False"
	}
	c.add("v1", "Pod", object{"namespace": namespace, "name": name, "labels": labels}, object{
		"spec": spec,
		"status": object{
			"phase": "Running", "podIP": p.addrs[0].String(),
			"podIPs":     list{object{"ip": p.addrs[0].String()}, object{"ip": p.addrs[1].String()}},
			"conditions": list{object{"type": "Ready", "status": ready}},
		},
	})
	c.pods = append(c.pods, p)
	return p
}

// slice adds an EndpointSlice for one family.
func (c *randomCluster) slice(namespace, service, family string, ports list, pods []*pod) {
	var endpoints list
	for _, p := range pods {
		addr := p.addrs[0]
		if family[0] == '6' {
			addr = p.addrs[1]
		}
		e := object{
			"addresses": list{addr.String()}, "nodeName": p.node,
			"conditions": object{"ready": p.ready, "serving": p.ready, "terminating": false},
			"targetRef":  object{"kind": "Pod", "namespace": p.namespace, "name": p.name},
		}
		if service == "s0" {
			e["hostname"] = p.name
		}
		endpoints = append(endpoints, e)
	}
	c.add("discovery.k8s.io/v1", "EndpointSlice", object{
		"namespace": namespace, "name": service + "-" + family, "labels": object{"kubernetes.io/service-name": service},
	}, object{"addressType": "IPv" + family[:1], "ports": ports, "endpoints": endpoints})
}

// service adds a Service with its EndpointSlices.
func (c *randomCluster) service(namespace, name string) {
	s := &service{namespace: namespace, name: name, selector: map[string]string{"app": pick(c, apps...)}}
	if c.chance(3) {
		s.selector["tier"] = pick(c, tiers...)
	}
	c.services = append(c.services, s)
	spec := object{"selector": s.selector}
	status := object{}
	if name != "s0" && c.chance(9) {
		to := pick(c, "s0.blue.svc.cluster.local", "www.outside.example", "nothing.red.svc.cluster.local")
		s.alias = to
		c.add("v1", "Service", object{"namespace": namespace, "name": name}, object{
			"spec": object{"type": "ExternalName", "externalName": to},
		})
		return
	}
	i := len(c.services)
	s.headless = name == "s0" || c.chance(6)
	families := pick(c, "4", "6", "46", "4", "46")
	var names list
	for _, f := range families {
		names = append(names, "IPv"+string(f))
		if !s.headless {
			s.addrs = append(s.addrs, netip.MustParseAddr(map[rune]string{
				'4': fmt.Sprintf("10.96.1.%d", i), '6': fmt.Sprintf("fd00:10:96::1:%x", i),
			}[f]))
		}
	}
	spec["ipFamilies"] = names
	spec["ipFamilyPolicy"] = map[int]string{1: "SingleStack", 2: "RequireDualStack"}[len(families)]
	if s.headless {
		spec["clusterIP"], spec["clusterIPs"] = "None", list{"None"}
	} else {
		c.exposed(s, spec, status, i)
	}
	c.ports(s, spec)
	if c.chance(5) {
		spec["publishNotReadyAddresses"] = true
	}
	if !s.headless && c.chance(8) {
		spec["internalTrafficPolicy"] = "Local"
	}
	c.add("v1", "Service", object{"namespace": namespace, "name": name}, object{"spec": spec, "status": status})
	c.endpoints(s, spec, families)
}

// exposed gives a Service its cluster IPs and, maybe, addresses outside.
func (c *randomCluster) exposed(s *service, spec, status object, i int) {
	var all list
	for _, a := range s.addrs {
		all = append(all, a.String())
	}
	spec["clusterIP"], spec["clusterIPs"] = all[0], all
	if c.chance(6) {
		s.affinity = true
		spec["sessionAffinity"] = "ClientIP"
	}
	v4 := s.addrs[0].Is4()
	switch c.IntN(5) {
	case 0:
		spec["type"] = "NodePort"
	case 1:
		spec["type"] = "LoadBalancer"
		if v4 {
			addr := netip.MustParseAddr(fmt.Sprintf("192.0.2.%d", 20+i))
			s.outside = append(s.outside, addr)
			status["loadBalancer"] = object{"ingress": list{object{"ip": addr.String()}}}
			if c.chance(2) {
				spec["loadBalancerSourceRanges"] = list{pick(c, "203.0.113.0/25", "192.0.2.0/24", "203.0.113.128/25")}
			}
		}
	case 2:
		if v4 {
			addr := netip.MustParseAddr(fmt.Sprintf("192.0.2.%d", 120+i))
			s.outside = append(s.outside, addr)
			spec["externalIPs"] = list{addr.String()}
		}
	}
	if spec["type"] != nil && c.chance(3) {
		spec["externalTrafficPolicy"] = "Local"
		if spec["type"] == "LoadBalancer" {
			spec["healthCheckNodePort"] = 31000 + i
		}
	}
}

// ports gives a Service its ports.
func (c *randomCluster) ports(s *service, spec object) {
	ports := list{}
	exposed := spec["type"] == "NodePort" || spec["type"] == "LoadBalancer"
	add := func(name string, p servicePort, target any) {
		o := object{"name": name, "port": p.number, "targetPort": target, "protocol": "TCP"}
		if p.udp {
			o["protocol"] = "UDP"
		}
		if exposed {
			p.nodePort = 30000 + 10*len(c.services) + len(ports)
			o["nodePort"] = p.nodePort
		}
		s.ports = append(s.ports, p)
		ports = append(ports, o)
	}
	add("http", servicePort{number: 80}, pick[any](c, "http", "http", 8080, 8081))
	if c.chance(2) {
		add("metrics", servicePort{number: metricsPort}, pick[any](c, "metrics", metricsPort, "absent"))
	}
	if c.chance(3) {
		add("stats", servicePort{number: statsPort, udp: true}, pick[any](c, "stats", statsPort))
	}
	spec["ports"] = ports
}

// endpoints adds the EndpointSlices of a Service, as the controller makes them: one for Pods with the same ports.
func (c *randomCluster) endpoints(s *service, spec object, families string) {
	byPorts := make(map[string][]*pod)
	portsOf := make(map[string]list)
	for _, p := range c.pods {
		if p.namespace != s.namespace || !selects(s.selector, p.labels) {
			continue
		}
		ports := resolved(p, spec["ports"].(list))
		key := fmt.Sprint(ports)
		byPorts[key] = append(byPorts[key], p)
		portsOf[key] = ports
		if p.ready || spec["publishNotReadyAddresses"] == true {
			s.endpoints++
		}
	}
	i := 0
	for _, key := range slices.Sorted(maps.Keys(byPorts)) {
		i++
		for _, f := range families {
			pods := byPorts[key]
			if spec["publishNotReadyAddresses"] == true {
				pods = asReady(pods)
			}
			c.slice(s.namespace, s.name, fmt.Sprintf("%c-%d", f, i), portsOf[key], pods)
		}
	}
}

// asReady returns Pods as EndpointSlices have those whose readiness is not looked at.
func asReady(pods []*pod) (all []*pod) {
	for _, p := range pods {
		ready := *p
		ready.ready = true
		all = append(all, &ready)
	}
	return all
}

// resolved returns the ports of a Pod for those of a Service.
func resolved(p *pod, ports list) (all list) {
	all = list{}
	for _, port := range ports {
		o := port.(object)
		number := o["targetPort"]
		switch number {
		case "http":
			number = p.http
		case "metrics":
			number = metricsPort
		case "stats":
			number = statsPort
		case "absent":
			continue
		}
		all = append(all, object{"name": o["name"], "port": number, "protocol": o["protocol"]})
	}
	return all
}

func selects(selector, labels map[string]string) bool {
	for name, value := range selector {
		if labels[name] != value {
			return false
		}
	}
	return true
}

// secret adds a certificate for a name.
func (c *randomCluster) secret(t *testing.T, namespace, name, host string) {
	t.Helper()
	made, err := testcert.New(host, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	certificate, key := made.PEM()
	c.add("v1", "Secret", object{"namespace": namespace, "name": name}, object{
		"type": "kubernetes.io/tls",
		"data": object{
			"tls.crt": base64.StdEncoding.EncodeToString(certificate), "tls.key": base64.StdEncoding.EncodeToString(key),
		},
	})
}
