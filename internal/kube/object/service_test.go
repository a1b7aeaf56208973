package object

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"portolan.dev/portolan/internal/cluster"
)

func service() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: corev1.ServiceSpec{
			Type:       corev1.ServiceTypeClusterIP,
			ClusterIP:  "10.96.0.1",
			ClusterIPs: []string{"10.96.0.1", "fd00::1"},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol},
			Ports:      []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}, {Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53}},
			Selector:   map[string]string{"app": "web"},
		},
	}
}

func TestService(t *testing.T) {
	full := func(change func(*cluster.Service)) *cluster.Service {
		s := &cluster.Service{
			Key: cluster.Key{Namespace: "shop", Name: "web"}, ClusterIPs: addrs("10.96.0.1", "fd00::1"),
			Ports:    []cluster.Port{{Name: "http", Protocol: cluster.TCP, Number: 80}, {Name: "dns", Protocol: cluster.UDP, Number: 53}},
			Selector: map[string]string{"app": "web"},
		}
		if change != nil {
			change(s)
		}
		return s
	}
	external := func(target string) (func(*corev1.Service), *cluster.Service) {
		return func(s *corev1.Service) {
				s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: target}
			},
			&cluster.Service{Key: cluster.Key{Namespace: "shop", Name: "web"}, ExternalName: target}
	}
	type test struct {
		change func(*corev1.Service)
		want   *cluster.Service
	}
	tests := map[string]test{
		"all fields":                      {nil, full(nil)},
		"without namespace it is default": {func(s *corev1.Service) { s.Namespace = "" }, full(func(s *cluster.Service) { s.Namespace = "default" })},
		"a name that begins with a digit": {func(s *corev1.Service) { s.Name = "1web" }, full(func(s *cluster.Service) { s.Name = "1web" })},
		"without type it is ClusterIP":    {func(s *corev1.Service) { s.Spec.Type = "" }, full(nil)},
		"NodePort has ClusterIPs":         {func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort }, full(nil)},
		"LoadBalancer has ClusterIPs":     {func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeLoadBalancer }, full(nil)},
		"a target by name": {func(s *corev1.Service) { s.Spec.Ports[1].TargetPort = intstr.FromString("domain") },
			full(func(s *cluster.Service) { s.Targets = []string{"", "domain"} })},
		"clusterIP alone": {func(s *corev1.Service) { s.Spec.ClusterIPs, s.Spec.IPFamilies = nil, nil },
			full(func(s *cluster.Service) { s.ClusterIPs = addrs("10.96.0.1") })},
		"clusterIPs alone": {func(s *corev1.Service) { s.Spec.ClusterIP = "" }, full(nil)},
		"IPv6 first": {func(s *corev1.Service) {
			s.Spec.ClusterIP, s.Spec.ClusterIPs = "fd00::1", []string{"fd00::1", "10.96.0.1"}
			s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}
		}, full(func(s *cluster.Service) { s.ClusterIPs = addrs("fd00::1", "10.96.0.1") })},
		"families may wait for their addresses": {func(s *corev1.Service) { s.Spec.ClusterIPs = []string{"10.96.0.1"} },
			full(func(s *cluster.Service) { s.ClusterIPs = addrs("10.96.0.1") })},
		"no address yet": {func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "", nil },
			full(func(s *cluster.Service) { s.ClusterIPs = nil })},
		"clusterIP None is headless": {func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "None", nil },
			full(func(s *cluster.Service) { s.Headless, s.ClusterIPs = true, nil })},
		"clusterIPs None is headless": {func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "", []string{"None"} },
			full(func(s *cluster.Service) { s.Headless, s.ClusterIPs = true, nil })},
		"both None is headless": {func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "None", []string{"None"} },
			full(func(s *cluster.Service) { s.Headless, s.ClusterIPs = true, nil })},
		"a port without protocol is TCP": {func(s *corev1.Service) { s.Spec.Ports[1].Protocol = "" },
			full(func(s *cluster.Service) { s.Ports[1].Protocol = cluster.TCP })},
		"SCTP is a protocol": {func(s *corev1.Service) { s.Spec.Ports[1].Protocol = corev1.ProtocolSCTP },
			full(func(s *cluster.Service) { s.Ports[1].Protocol = cluster.SCTP })},
		"a port without name": {func(s *corev1.Service) { s.Spec.Ports = []corev1.ServicePort{{Port: 65535}} },
			full(func(s *cluster.Service) { s.Ports = []cluster.Port{{Protocol: cluster.TCP, Number: 65535}} })},
		"no ports": {func(s *corev1.Service) { s.Spec.Ports = nil }, full(func(s *cluster.Service) { s.Ports = nil })},
		"its age": {func(s *corev1.Service) { s.CreationTimestamp = metav1.Unix(1700000000, 0) },
			full(func(s *cluster.Service) { s.Created = 1700000000 })},
		"publishes those not ready, by field": {func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = true },
			full(func(s *cluster.Service) { s.PublishNotReady = true })},
		"publishes those not ready, by annotation": {func(s *corev1.Service) { s.Annotations = map[string]string{tolerateUnready: "true"} },
			full(func(s *cluster.Service) { s.PublishNotReady = true })},
		"the annotation may say no": {func(s *corev1.Service) { s.Annotations = map[string]string{tolerateUnready: "false"} }, full(nil)},
		"the annotation does not take back the field": {func(s *corev1.Service) {
			s.Spec.PublishNotReadyAddresses, s.Annotations = true, map[string]string{tolerateUnready: "false"}
		}, full(func(s *cluster.Service) { s.PublishNotReady = true })},
	}
	for claim, target := range map[string]string{
		"an external name":                    "web.example.com",
		"an external name with its last dot":  "web.example.com.",
		"an external name of one label":       "web",
		"an external name of digits":          "192.0.2.1",
		"an external name that is an address": "2001:db8::1",
	} {
		change, want := external(target)
		tests[claim] = test{change, want}
	}
	for claim, test := range tests {
		in := service()
		if test.change != nil {
			test.change(in)
		}
		got, errs := Service(in)
		got.Spec = nil // see TestServiceSpec
		if d := cmp.Diff(test.want, got, addrEqual); d != "" || len(errs) > 0 {
			t.Errorf("%s: Service: %v (-want +got)\n%s", claim, errs, d)
		}
	}
}

// TestServiceSpec checks the fields of a Service that do not affect names.
func TestServiceSpec(t *testing.T) {
	h2c, policy, distribution, local, no := "kubernetes.io/h2c", corev1.IPFamilyPolicyPreferDualStack, "PreferSameZone", corev1.ServiceInternalTrafficPolicyLocal, false
	for claim, test := range map[string]struct {
		change func(*corev1.Service)
		want   cluster.ServiceSpec
	}{
		"a type": {func(*corev1.Service) {}, cluster.ServiceSpec{Type: cluster.ClusterIP}},
		"labels, and who it is": {func(s *corev1.Service) { s.Labels, s.UID = map[string]string{"a": "b"}, "1-2" },
			cluster.ServiceSpec{Type: cluster.ClusterIP, Labels: map[string]string{"a": "b"}, UID: "1-2"}},
		"families": {func(s *corev1.Service) {
			s.Spec.IPFamilies, s.Spec.IPFamilyPolicy = []corev1.IPFamily{corev1.IPv6Protocol}, &policy
		}, cluster.ServiceSpec{Type: cluster.ClusterIP, Families: []cluster.AddressType{cluster.IPv6}, FamilyPolicy: cluster.PreferDualStack}},
		"node ports": {func(s *corev1.Service) {
			s.Spec.Type, s.Spec.Ports[1].NodePort, s.Spec.HealthCheckNodePort = corev1.ServiceTypeLoadBalancer, 30007, 30008
			s.Spec.AllocateLoadBalancerNodePorts, s.Spec.ExternalTrafficPolicy = &no, corev1.ServiceExternalTrafficPolicyLocal
		}, cluster.ServiceSpec{Type: cluster.LoadBalancer, NodePorts: []uint16{0, 30007}, HealthCheckNodePort: 30008, NoNodePorts: true, ExternalLocal: true}},
		"where traffic goes": {func(s *corev1.Service) {
			s.Spec.Ports[0].AppProtocol, s.Spec.TrafficDistribution, s.Spec.InternalTrafficPolicy = &h2c, &distribution, &local
			s.Annotations = map[string]string{corev1.AnnotationTopologyMode: "Auto"}
		}, cluster.ServiceSpec{Type: cluster.ClusterIP, AppProtocols: []*string{&h2c, nil}, TrafficDistribution: distribution, InternalLocal: true, TopologyMode: "Auto"}},
		"the older annotation counts": {func(s *corev1.Service) {
			s.Annotations = map[string]string{corev1.AnnotationTopologyMode: "Auto", "service.kubernetes.io/topology-aware-hints": "disabled"}
		}, cluster.ServiceSpec{Type: cluster.ClusterIP, TopologyMode: "disabled"}},
		"external addresses, without those that are none": {func(s *corev1.Service) {
			s.Spec.ExternalIPs = []string{"203.0.113.1", "lb.example", "2001:db8::1", "010.0.0.1"}
		}, cluster.ServiceSpec{Type: cluster.ClusterIP, ExternalIPs: addrs("203.0.113.1", "2001:db8::1")}},
		"what is asked of a load balancer": {func(s *corev1.Service) {
			s.Spec.Type, s.Spec.LoadBalancerClass, s.Spec.LoadBalancerIP = corev1.ServiceTypeLoadBalancer, new("portolan.dev/lb"), "192.0.2.1"
			s.Annotations = map[string]string{"portolan.dev/load-balancer-ips": "192.0.2.2", "portolan.dev/pool": "p", "portolan.dev/sharing-key": "k"}
		}, cluster.ServiceSpec{Type: cluster.LoadBalancer, LoadBalancer: &cluster.LoadBalancerSpec{
			Class: "portolan.dev/lb", IP: "192.0.2.1", Addresses: "192.0.2.2", Pool: "p", SharingKey: "k",
		}}},
		"nothing is asked of a load balancer by other types": {func(s *corev1.Service) {
			s.Annotations = map[string]string{"portolan.dev/pool": "p"}
		}, cluster.ServiceSpec{Type: cluster.ClusterIP}},
		"addresses of a load balancer, without names": {func(s *corev1.Service) {
			s.Spec.Type = corev1.ServiceTypeLoadBalancer
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{
				{IP: "203.0.113.1"}, {Hostname: "lb.example"}, {IP: "203.0.113.2", IPMode: new(corev1.LoadBalancerIPModeProxy)},
				{IP: "203.0.113.3", IPMode: new(corev1.LoadBalancerIPModeVIP)}, {IP: "203.0.113.4", IPMode: new(corev1.LoadBalancerIPMode("Other"))},
			}
		}, cluster.ServiceSpec{Type: cluster.LoadBalancer, Ingress: []cluster.IngressIP{
			{Addr: netip.MustParseAddr("203.0.113.1")}, {Addr: netip.MustParseAddr("203.0.113.2"), Proxy: true},
			{Addr: netip.MustParseAddr("203.0.113.3")}, {Addr: netip.MustParseAddr("203.0.113.4"), Proxy: true},
		}}},
		"ranges of clients, in which blanks are allowed": {func(s *corev1.Service) {
			s.Spec.LoadBalancerSourceRanges = []string{" 198.51.100.7/24", "2001:db8::/32 ", "0.0.0.0/0"}
		}, cluster.ServiceSpec{Type: cluster.ClusterIP, SourceRanges: ranges("198.51.100.0/24", "2001:db8::/32", "0.0.0.0/0")}},
		"ranges none of which is valid admit none": {func(s *corev1.Service) {
			s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0", "::ffff:10.0.0.0/104"}
		}, cluster.ServiceSpec{Type: cluster.ClusterIP, SourceRanges: ranges("0.0.0.0/32", "::/128")}},
		"session affinity has the API's timeout unless it is given": {func(s *corev1.Service) {
			s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		}, cluster.ServiceSpec{Type: cluster.ClusterIP, AffinitySeconds: 10800}},
		"a timeout of session affinity": {func(s *corev1.Service) {
			s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
			s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(60))}}
		}, cluster.ServiceSpec{Type: cluster.ClusterIP, AffinitySeconds: 60}},
		"a timeout without session affinity means nothing": {func(s *corev1.Service) {
			s.Spec.SessionAffinity = corev1.ServiceAffinityNone
			s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(60))}}
		}, cluster.ServiceSpec{Type: cluster.ClusterIP}},
		"about to end": {func(s *corev1.Service) { s.DeletionTimestamp = &metav1.Time{} }, cluster.ServiceSpec{Type: cluster.ClusterIP, Deleting: true}},
	} {
		in := service()
		in.Spec.ClusterIP, in.Spec.ClusterIPs, in.Spec.IPFamilies, in.Spec.Type = "", nil, nil, ""
		test.change(in)
		got, errs := Service(in)
		if d := cmp.Diff(&test.want, got.Spec, addrEqual); d != "" || len(errs) > 0 {
			t.Errorf("%s: Service: %v (-want +got)\n%s", claim, errs, d)
		}
	}
}

func TestServiceRefusals(t *testing.T) {
	meta := func(o *corev1.Service) *metav1.ObjectMeta { return &o.ObjectMeta }
	ips := func(texts ...string) func(*corev1.Service) {
		return func(s *corev1.Service) {
			s.Spec.ClusterIP, s.Spec.ClusterIPs, s.Spec.IPFamilies = texts[0], texts, nil
		}
	}
	port := func(change func(*corev1.ServicePort)) func(*corev1.Service) {
		return func(s *corev1.Service) { change(&s.Spec.Ports[1]) }
	}
	external := func(target string) func(*corev1.Service) {
		return func(s *corev1.Service) {
			s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: target}
		}
	}
	testRefusals(t, "Service", service, Service, nameRefusals(meta))
	testRefusals(t, "Service", service, Service, labelRefusals(meta))
	testRefusals(t, "Service", service, Service, map[string]refusal[corev1.Service]{
		"a health check's node port too high": {func(s *corev1.Service) { s.Spec.HealthCheckNodePort = 99999 }, []string{"spec.healthCheckNodePort: Invalid value"}},
		"a type that there is not":            {func(s *corev1.Service) { s.Spec.Type = "External" }, []string{"spec.type: Unsupported value"}},
		"port 0":                              {port(func(p *corev1.ServicePort) { p.Port = 0 }), []string{"spec.ports[1].port: Invalid value"}},
		"a port below 0":                      {port(func(p *corev1.ServicePort) { p.Port = -1 }), []string{"spec.ports[1].port: Invalid value"}},
		"a port above 65535":                  {port(func(p *corev1.ServicePort) { p.Port = 65536 }), []string{"spec.ports[1].port: Invalid value"}},
		"a protocol that there is not":        {port(func(p *corev1.ServicePort) { p.Protocol = "tcp" }), []string{"spec.ports[1].protocol: Unsupported value"}},
		"a port's name with upper case":       {port(func(p *corev1.ServicePort) { p.Name = "HTTP" }), []string{"spec.ports[1].name: Invalid value"}},
		"a port's name with underscore":       {port(func(p *corev1.ServicePort) { p.Name = "_http" }), []string{"spec.ports[1].name: Invalid value"}},
		"a port's name with a dot":            {port(func(p *corev1.ServicePort) { p.Name = "a.b" }), []string{"spec.ports[1].name: Invalid value"}},
		"a clusterIP that is none":            {ips("10.96.0.256"), []string{"spec.clusterIPs[0]: Invalid value"}},
		"the second clusterIP is none":        {ips("10.96.0.1", "x"), []string{"spec.clusterIPs[1]: Invalid value"}},
		"only the first clusterIP is bad":     {ips("x", "fd00::1"), []string{"spec.clusterIPs[0]: Invalid value"}},
		"two of one family":                   {ips("10.96.0.1", "10.96.0.2"), []string{"spec.clusterIPs[1]: Invalid value"}},
		"two of the other family":             {ips("fd00::1", "fd00::2"), []string{"spec.clusterIPs[1]: Invalid value"}},
		"three":                               {ips("10.96.0.1", "fd00::1", "10.96.0.2"), []string{"spec.clusterIPs[2]: Invalid value"}},
		"an address beside None":              {ips("None", "10.96.0.1"), []string{"spec.clusterIPs[1]: Invalid value"}},
		"None beside an address":              {ips("10.96.0.1", "None"), []string{"spec.clusterIPs[1]: Invalid value"}},
		"IPv4 in IPv6's clothes":              {ips("::ffff:10.96.0.1"), []string{"spec.clusterIPs[0]: Invalid value"}},
		"clusterIP alone is bad": {func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "x", nil },
			[]string{"spec.clusterIP: Invalid value"}},
		"clusterIP is not the first of clusterIPs": {func(s *corev1.Service) { s.Spec.ClusterIP = "10.96.0.2" },
			[]string{"spec.clusterIPs[0]: Invalid value"}},
		"an address of another family than ipFamilies says": {func(s *corev1.Service) {
			s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}
		}, []string{"spec.clusterIPs[0]: Invalid value", "spec.clusterIPs[1]: Invalid value"}},
		"clusterIP of another family than ipFamilies says": {func(s *corev1.Service) {
			s.Spec.ClusterIPs, s.Spec.IPFamilies = nil, []corev1.IPFamily{corev1.IPv6Protocol}
		}, []string{"spec.clusterIP: Invalid value"}},
		"a family that there is not": {func(s *corev1.Service) { s.Spec.IPFamilies[1] = "IPv5" },
			[]string{"spec.ipFamilies[1]: Unsupported value"}},
		"no external name":                  {external(""), []string{"spec.externalName: Required value"}},
		"an external name that is a dot":    {external("."), []string{"spec.externalName: Required value"}},
		"an external name with underscore":  {external("a_b.example"), []string{"spec.externalName: Invalid value"}},
		"an external name with upper case":  {external("A.example"), []string{"spec.externalName: Invalid value"}},
		"an external name with a port":      {external("a.example:80"), []string{"spec.externalName: Invalid value"}},
		"an external name of a URL":         {external("http://a.example:80/"), []string{"spec.externalName: Invalid value"}},
		"an external name with empty label": {external("a..example"), []string{"spec.externalName: Invalid value"}},
	})
}

// TestURLInsteadOfName checks that the error for a URL says which parts to remove.
func TestURLInsteadOfName(t *testing.T) {
	for target, want := range map[string]string{
		"a.example:80":          `spec.externalName: Invalid value: "a.example:80": a name is wanted, leave out ":80"`,
		"a.example/b":           `spec.externalName: Invalid value: "a.example/b": a name is wanted, leave out "/b"`,
		"http://a.example:80/b": `spec.externalName: Invalid value: "http://a.example:80/b": a name is wanted, leave out "http://" and ":80/b"`,
	} {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: target}}
		if _, errs := Service(s); len(errs) != 1 || errs[0].Error() != want {
			t.Errorf("Service with the external name %s: errors %v, want %s", target, errs, want)
		}
	}
}
