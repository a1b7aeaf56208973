package object

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"portolan.dev/portolan/internal/cluster"
)

func TestPodSpec(t *testing.T) {
	override, yes, two := "other", true, "2"
	spec := &corev1.PodSpec{
		OS: &corev1.PodOS{Name: corev1.Windows}, HostNetwork: true, DNSPolicy: corev1.DNSNone, Hostname: "a", HostnameOverride: &override,
		Subdomain: "b", SetHostnameAsFQDN: &yes,
		DNSConfig: &corev1.PodDNSConfig{
			Nameservers: []string{"192.0.2.1"}, Searches: []string{"corp.example"},
			Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: &two}, {Name: "edns0"}},
		},
		Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80}, {ContainerPort: 0}}}},
		InitContainers: []corev1.Container{
			{Ports: []corev1.ContainerPort{{Name: "dns", ContainerPort: 53, Protocol: corev1.ProtocolUDP}}, RestartPolicy: new(corev1.ContainerRestartPolicyAlways)},
			{Ports: []corev1.ContainerPort{{Name: "ends", ContainerPort: 54}}},
		},
	}
	want := &cluster.PodSpec{
		OS: "windows", HostNetwork: true, DNSPolicy: "None", Hostname: "a", HostnameOverride: &override, Subdomain: "b", SetHostnameAsFQDN: true,
		DNSConfig: &cluster.DNSConfig{
			Nameservers: []string{"192.0.2.1"}, Searches: []string{"corp.example"},
			Options: []cluster.DNSOption{{Name: "ndots", Value: "2"}, {Name: "edns0"}},
		},
		Ports: []cluster.Port{{Name: "http", Protocol: cluster.TCP, Number: 80}, {Name: "dns", Protocol: cluster.UDP, Number: 53}},
	}
	if diff := cmp.Diff(want, PodSpec(&metav1.ObjectMeta{}, spec)); diff != "" {
		t.Errorf("PodSpec (-want +got):\n%s", diff)
	}
}

func TestWorkloads(t *testing.T) {
	three := int32(3)
	meta := metav1.ObjectMeta{Namespace: "shop", Name: "web"}
	labels := map[string]string{"app": "web"}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Subdomain: "web"}}
	job := batchv1.JobSpec{Parallelism: &three, Selector: selector, Template: template}
	want := func(kind cluster.Kind, replicas int, service string) *cluster.Workload {
		return &cluster.Workload{
			Kind: kind, Key: cluster.Key{Namespace: "shop", Name: "web"}, Replicas: replicas, Service: service,
			Selector: &cluster.Selector{Labels: labels}, Labels: labels, Spec: cluster.PodSpec{Subdomain: "web"},
		}
	}
	ordinal := func(w *cluster.Workload) *cluster.Workload { w.LastOrdinal = 12; return w }
	named := func(w *cluster.Workload) *cluster.Workload {
		w.Labels = map[string]string{"app": "web", "job-name": "web", "batch.kubernetes.io/job-name": "web"}
		return w
	}
	deployment, e1 := Deployment(&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: &three, Selector: selector, Template: template}})
	set, e2 := StatefulSet(&appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{
		ServiceName: "db", Selector: selector, Template: template, Replicas: &three, Ordinals: &appsv1.StatefulSetOrdinals{Start: 10},
	}})
	daemon, e3 := DaemonSet(&appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template}})
	once, e4 := Job(&batchv1.Job{ObjectMeta: meta, Spec: job})
	often, e5 := CronJob(&batchv1.CronJob{ObjectMeta: meta, Spec: batchv1.CronJobSpec{JobTemplate: batchv1.JobTemplateSpec{Spec: job}}})
	for i, errs := range []int{len(e1), len(e2), len(e3), len(e4), len(e5)} {
		if errs > 0 {
			t.Errorf("workload %d is refused", i)
		}
	}
	for _, test := range []struct{ got, want *cluster.Workload }{
		{deployment, want(cluster.KindDeployment, 3, "")},
		{set, ordinal(want(cluster.KindStatefulSet, 3, "db"))},
		{daemon, want(cluster.KindDaemonSet, 1, "")},
		{once, named(want(cluster.KindJob, 3, ""))},
		{often, want(cluster.KindCronJob, 3, "")},
	} {
		if diff := cmp.Diff(test.want, test.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.want.Kind, diff)
		}
	}
	few := int32(-1)
	testRefusals(t, "StatefulSet", func() *appsv1.StatefulSet { return &appsv1.StatefulSet{ObjectMeta: meta} }, StatefulSet, map[string]refusal[appsv1.StatefulSet]{
		"fewer than no replicas": {func(s *appsv1.StatefulSet) { s.Spec.Replicas = &few }, []string{"spec.replicas: Invalid value"}},
		"ordinals below 0": {func(s *appsv1.StatefulSet) { s.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: -1} },
			[]string{"spec.ordinals.start: Invalid value"}},
	})
	testRefusals(t, "Job", func() *batchv1.Job { return &batchv1.Job{ObjectMeta: meta} }, Job, map[string]refusal[batchv1.Job]{
		"fewer than no Pods at once": {func(j *batchv1.Job) { j.Spec.Parallelism = &few }, []string{"spec.parallelism: Invalid value"}},
	})
	testRefusals(t, "Deployment", func() *appsv1.Deployment { return &appsv1.Deployment{ObjectMeta: meta} }, Deployment,
		nameRefusals(func(o *appsv1.Deployment) *metav1.ObjectMeta { return &o.ObjectMeta }))
}

func prefixes(texts ...string) (list []netip.Prefix) {
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

func policy() *networkingv1.NetworkPolicy {
	udp, port, name, end := corev1.ProtocolUDP, intstr.FromInt32(53), intstr.FromString("dns"), int32(60)
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "dns"},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"a", "b"}}}},
			Egress: []networkingv1.NetworkPolicyEgressRule{{
				To: []networkingv1.NetworkPolicyPeer{
					{NamespaceSelector: &metav1.LabelSelector{}, PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"k8s-app": "kube-dns"}}},
					{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.1/8", Except: []string{"10.1.0.0/16"}}},
				},
				Ports: []networkingv1.NetworkPolicyPort{{Protocol: &udp, Port: &port, EndPort: &end}, {Port: &name}, {}},
			}},
		},
	}
}

func TestNetworkPolicy(t *testing.T) {
	got, errs := NetworkPolicy(policy())
	want := &cluster.NetworkPolicy{
		Key:     cluster.Key{Namespace: "shop", Name: "dns"},
		Pods:    cluster.Selector{Requirements: []cluster.Requirement{{Label: "app", Operator: cluster.In, Values: []string{"a", "b"}}}},
		Ingress: true, Egress: true,
		EgressRules: []cluster.PolicyRule{{
			Peers: []cluster.PolicyPeer{
				{Namespaces: &cluster.Selector{}, Pods: &cluster.Selector{Labels: map[string]string{"k8s-app": "kube-dns"}}},
				{Block: prefixes("10.0.0.0/8")[0], Except: prefixes("10.1.0.0/16")},
			},
			Ports: []cluster.PolicyPort{{Protocol: cluster.UDP, Number: 53, End: 60}, {Protocol: cluster.TCP, Name: "dns"}, {Protocol: cluster.TCP}},
		}},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" || len(errs) > 0 {
		t.Errorf("NetworkPolicy: %v (-want +got)\n%s", errs, diff)
	}
	testRefusals(t, "NetworkPolicy", policy, NetworkPolicy, map[string]refusal[networkingv1.NetworkPolicy]{
		"a range that is none": {func(p *networkingv1.NetworkPolicy) { p.Spec.Egress[0].To[1].IPBlock.CIDR = "10.0.0.1" },
			[]string{"spec.egress[0].to[1].ipBlock.cidr: Invalid value"}},
		"an exception that is none": {func(p *networkingv1.NetworkPolicy) { p.Spec.Egress[0].To[1].IPBlock.Except[0] = "x" },
			[]string{"spec.egress[0].to[1].ipBlock.except[0]: Invalid value"}},
		"a peer that is nobody": {func(p *networkingv1.NetworkPolicy) { p.Spec.Egress[0].To[0] = networkingv1.NetworkPolicyPeer{} },
			[]string{"spec.egress[0].to[0]: Required value"}},
		"a peer of both kinds": {func(p *networkingv1.NetworkPolicy) { p.Spec.Egress[0].To[1].PodSelector = new(metav1.LabelSelector) },
			[]string{"spec.egress[0].to[1].ipBlock: Forbidden"}},
		"a port that is none": {func(p *networkingv1.NetworkPolicy) { p.Spec.Egress[0].Ports[0].Port.IntVal = 70000 },
			[]string{"spec.egress[0].ports[0].port: Invalid value"}},
		"a protocol that is none": {func(p *networkingv1.NetworkPolicy) { *p.Spec.Egress[0].Ports[0].Protocol = "ICMP" },
			[]string{"spec.egress[0].ports[0].protocol: Unsupported value"}},
		"an exception outside": {func(p *networkingv1.NetworkPolicy) { p.Spec.Egress[0].To[1].IPBlock.Except[0] = "11.0.0.0/16" },
			[]string{"spec.egress[0].to[1].ipBlock.except[0]: Invalid value"}},
		"an exception of everything": {func(p *networkingv1.NetworkPolicy) { p.Spec.Egress[0].To[1].IPBlock.Except[0] = "10.0.0.0/8" },
			[]string{"spec.egress[0].to[1].ipBlock.except[0]: Invalid value"}},
		"an endPort without a port": {func(p *networkingv1.NetworkPolicy) { p.Spec.Egress[0].Ports[0].Port = nil },
			[]string{"spec.egress[0].ports[0].endPort: Forbidden"}},
		"an endPort after a name": {func(p *networkingv1.NetworkPolicy) { *p.Spec.Egress[0].Ports[0].Port = intstr.FromString("dns") },
			[]string{"spec.egress[0].ports[0].endPort: Forbidden"}},
		"an endPort before the port": {func(p *networkingv1.NetworkPolicy) { *p.Spec.Egress[0].Ports[0].EndPort = 52 },
			[]string{"spec.egress[0].ports[0].endPort: Invalid value"}},
		"a port's name that is none": {func(p *networkingv1.NetworkPolicy) { *p.Spec.Egress[0].Ports[1].Port = intstr.FromString("d_s") },
			[]string{"spec.egress[0].ports[1].port: Invalid value"}},
		"a type that is none": {func(p *networkingv1.NetworkPolicy) { p.Spec.PolicyTypes = []networkingv1.PolicyType{"Inside"} },
			[]string{"spec.policyTypes[0]: Unsupported value"}},
		"an operator that is none": {func(p *networkingv1.NetworkPolicy) { p.Spec.PodSelector.MatchExpressions[0].Operator = "Is" },
			[]string{"spec.podSelector.matchExpressions[0].operator: Invalid value"}},
		"an operator without values": {func(p *networkingv1.NetworkPolicy) { p.Spec.PodSelector.MatchExpressions[0].Values = nil },
			[]string{"spec.podSelector.matchExpressions[0].values: Required value"}},
		"a label that is none": {func(p *networkingv1.NetworkPolicy) {
			p.Spec.Egress[0].To[0].PodSelector.MatchLabels = map[string]string{"-": "a"}
		},
			[]string{"spec.egress[0].to[0].podSelector.matchLabels: Invalid value"}},
		"audit maybe": {func(p *networkingv1.NetworkPolicy) { p.Annotations = map[string]string{cluster.AnnotationAudit: "yes"} },
			[]string{"metadata.annotations.portolan.dev/policy-audit: Unsupported value"}},
		"a name of one label": {func(p *networkingv1.NetworkPolicy) {
			p.Annotations = map[string]string{cluster.AnnotationEgressDomains: "example.com, com"}
		},
			[]string{"metadata.annotations.portolan.dev/egress-domains: Invalid value"}},
	})
}

// TestInvalidNetworkPolicies checks that what is invalid allows nothing, and that the rest counts.
func TestInvalidNetworkPolicies(t *testing.T) {
	everywhere := cluster.PolicyRule{}
	empty := func(p *networkingv1.NetworkPolicy) {
		p.Spec.Egress = append(p.Spec.Egress, networkingv1.NetworkPolicyEgressRule{})
	}
	to := func(p *networkingv1.NetworkPolicy) []networkingv1.NetworkPolicyPeer { return p.Spec.Egress[0].To }
	whole, _ := NetworkPolicy(policy())
	some := whole.EgressRules[0]
	for claim, test := range map[string]struct {
		spoil func(*networkingv1.NetworkPolicy)
		want  []cluster.PolicyRule
	}{
		"a peer": {func(p *networkingv1.NetworkPolicy) { to(p)[0] = networkingv1.NetworkPolicyPeer{} },
			[]cluster.PolicyRule{{Peers: some.Peers[1:], Ports: some.Ports}}},
		"an exception spoils its block": {func(p *networkingv1.NetworkPolicy) { to(p)[1].IPBlock.Except[0] = "x" },
			[]cluster.PolicyRule{{Peers: some.Peers[:1], Ports: some.Ports}}},
		"all peers of a rule": {func(p *networkingv1.NetworkPolicy) {
			empty(p)
			to(p)[0], to(p)[1].IPBlock.CIDR = networkingv1.NetworkPolicyPeer{}, ""
		}, []cluster.PolicyRule{everywhere}},
		"all ports of a rule": {func(p *networkingv1.NetworkPolicy) {
			empty(p)
			p.Spec.Egress[0].Ports = p.Spec.Egress[0].Ports[:1]
			*p.Spec.Egress[0].Ports[0].EndPort = 1
		}, []cluster.PolicyRule{everywhere}},
		"all names": {func(p *networkingv1.NetworkPolicy) {
			p.Spec.Egress = nil
			p.Annotations = map[string]string{cluster.AnnotationEgressDomains: "*"}
		}, nil},
		"one of the names": {func(p *networkingv1.NetworkPolicy) {
			p.Spec.Egress = nil
			p.Annotations = map[string]string{cluster.AnnotationEgressDomains: "*, Example.com , *.example.net."}
		}, []cluster.PolicyRule{{Peers: []cluster.PolicyPeer{{Domains: []string{"example.com", "*.example.net"}}}}}},
	} {
		p := policy()
		test.spoil(p)
		got, errs := NetworkPolicy(p)
		if d := cmp.Diff(test.want, got.EgressRules, cmpopts.EquateComparable(netip.Prefix{})); d != "" || len(errs) == 0 {
			t.Errorf("%s: errors %v, rules (-want +got)\n%s", claim, errs, d)
		}
		if !got.Egress {
			t.Errorf("%s: egress is not isolated", claim)
		}
	}
	p := policy()
	p.Spec.PodSelector.MatchExpressions[0].Operator = "Is"
	p.Spec.PolicyTypes = []networkingv1.PolicyType{"Inside"}
	p.Annotations = map[string]string{cluster.AnnotationAudit: "True"}
	if got, _ := NetworkPolicy(p); !got.Pods.Selects(nil) || !got.Ingress || !got.Egress || got.Audit {
		t.Errorf("an invalid selector, type and mode: %+v, want all Pods, both directions, and no audit", got)
	}
}

// TestPolicyAnnotations checks the annotations of a NetworkPolicy.
func TestPolicyAnnotations(t *testing.T) {
	for claim, test := range map[string]struct {
		types  []networkingv1.PolicyType
		egress bool
	}{
		"names restrict egress":             {nil, true},
		"policyTypes says that they do not": {[]networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, false},
		"policyTypes says that they do":     {[]networkingv1.PolicyType{networkingv1.PolicyTypeEgress}, true},
	} {
		p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{
			cluster.AnnotationEgressDomains: "example.com", cluster.AnnotationAudit: "true",
		}}}
		p.Spec.PolicyTypes = test.types
		got, errs := NetworkPolicy(p)
		if len(errs) > 0 || got.Egress != test.egress || !got.Audit || len(got.EgressRules) != 1 {
			t.Errorf("%s: %+v, %v; want egress %t, audit, and one rule", claim, got, errs, test.egress)
		}
	}
}

// TestPolicyTypes checks the default of spec.policyTypes.
func TestPolicyTypes(t *testing.T) {
	tests := map[string]struct {
		change          func(*networkingv1.NetworkPolicySpec)
		ingress, egress bool
	}{
		"rules for what goes out":       {func(*networkingv1.NetworkPolicySpec) {}, true, true},
		"no such rules":                 {func(s *networkingv1.NetworkPolicySpec) { s.Egress = nil }, true, false},
		"only Egress":                   {func(s *networkingv1.NetworkPolicySpec) { s.PolicyTypes = []networkingv1.PolicyType{"Egress"} }, false, true},
		"only Ingress, with such rules": {func(s *networkingv1.NetworkPolicySpec) { s.PolicyTypes = []networkingv1.PolicyType{"Ingress"} }, true, false},
		"Egress without rules for it": {func(s *networkingv1.NetworkPolicySpec) {
			s.Egress, s.PolicyTypes = nil, []networkingv1.PolicyType{"Egress"}
		}, false, true},
		"both, without any rule of them": {func(s *networkingv1.NetworkPolicySpec) {
			s.Egress, s.PolicyTypes = nil, []networkingv1.PolicyType{"Ingress", "Egress"}
		}, true, true},
	}
	for claim, test := range tests {
		p := policy()
		test.change(&p.Spec)
		got, _ := NetworkPolicy(p)
		if got.Ingress != test.ingress || got.Egress != test.egress {
			t.Errorf("%s: ingress %v, egress %v; want %v, %v", claim, got.Ingress, got.Egress, test.ingress, test.egress)
		}
	}
}
