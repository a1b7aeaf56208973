package deploy

import (
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"portolan.dev/portolan/internal/config"
)

// TestChartIsKustomization: both ways give the same objects.
func TestChartIsKustomization(t *testing.T) {
	all := variants(t)
	for kustomize, helm := range map[string]string{"kustomize/base": "helm", "kustomize/beside": "helm/beside"} {
		if diff := cmp.Diff(comparableOf(t, all[kustomize]), comparableOf(t, all[helm])); diff != "" {
			t.Errorf("objects (-%s +%s):\n%s", kustomize, helm, diff)
		}
	}
}

// comparableOf leaves out what only a chart adds, and compares the meaning of
// config.yaml, not its text.
func comparableOf(t *testing.T, all objects) objects {
	t.Helper()
	for _, o := range all {
		own, _ := o["metadata"].(map[string]any)["labels"].(map[string]any)
		for _, label := range []string{"helm.sh/chart", "app.kubernetes.io/managed-by", "app.kubernetes.io/version"} {
			delete(own, label)
		}
		switch o["kind"] {
		case "Deployment", "DaemonSet":
			pod := o["spec"].(map[string]any)["template"].(map[string]any)["metadata"].(map[string]any)
			delete(pod["annotations"].(map[string]any), "checksum/restart")
		case "ConfigMap":
			data := o["data"].(map[string]any)
			data["config.yaml"] = valuesOf(t, data["config.yaml"].(string))
		}
	}
	return all
}

// TestKinds: nothing is rendered that nobody asked for.
func TestKinds(t *testing.T) {
	for name, all := range variants(t) {
		t.Run(name, func(t *testing.T) {
			want := []string{
				"ClusterRole/portolan", "ClusterRoleBinding/portolan", "ConfigMap/portolan", "Deployment/portolan",
				"NetworkPolicy/portolan", "PodDisruptionBudget/portolan", "ServiceAccount/portolan", "Service/portolan",
			}
			for _, key := range want {
				if all[key] == nil {
					t.Errorf("%s is missing", key)
				}
			}
			if len(all) != len(want) {
				t.Errorf("%d objects, want %d", len(all), len(want))
			}
			for key, o := range all {
				clusterWide := strings.HasPrefix(key, "ClusterRole")
				if ns := o["metadata"].(map[string]any)["namespace"]; !clusterWide && ns != "kube-system" {
					t.Errorf("%s is in namespace %v, want kube-system", key, ns)
				}
			}
		})
	}
}

// TestHardened: every field that takes a privilege away is there.
func TestHardened(t *testing.T) {
	yes, no := true, false
	id := int64(65532)
	wantPod := &corev1.PodSecurityContext{
		RunAsNonRoot:   &yes,
		RunAsUser:      &id,
		RunAsGroup:     &id,
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	wantContainer := &corev1.SecurityContext{
		AllowPrivilegeEscalation: &no,
		ReadOnlyRootFilesystem:   &yes,
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_BIND_SERVICE"}},
	}
	for name, all := range variants(t) {
		t.Run(name, func(t *testing.T) {
			pod := as[appsv1.Deployment](t, all, "Deployment").Spec.Template.Spec
			if diff := cmp.Diff(wantPod, pod.SecurityContext); diff != "" {
				t.Errorf("the Pod's securityContext (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(wantContainer, onlyContainer(t, pod).SecurityContext); diff != "" {
				t.Errorf("the container's securityContext (-want +got):\n%s", diff)
			}
			if pod.HostNetwork || pod.HostPID || pod.HostIPC {
				t.Error("the Pod shares a namespace with its node")
			}
			account := as[corev1.ServiceAccount](t, all, "ServiceAccount")
			if mount := account.AutomountServiceAccountToken; mount == nil || *mount {
				t.Error("the service account's token is mounted into whatever Pod uses it")
			}
		})
	}
}

// TestStaysUp: what keeps the server there while nodes and Pods come and go.
func TestStaysUp(t *testing.T) {
	for name, all := range variants(t) {
		t.Run(name, func(t *testing.T) {
			d := as[appsv1.Deployment](t, all, "Deployment")
			pod := d.Spec.Template.Spec
			if *d.Spec.Replicas < 2 {
				t.Errorf("replicas = %d, want 2 or more", *d.Spec.Replicas)
			}
			if got := d.Spec.Strategy.RollingUpdate.MaxUnavailable; *got != intstr.FromInt32(0) {
				t.Errorf("maxUnavailable = %v, want 0", got)
			}
			if pod.PriorityClassName != "system-cluster-critical" {
				t.Errorf("priorityClassName = %q", pod.PriorityClassName)
			}
			if pod.DNSPolicy != corev1.DNSDefault {
				t.Errorf("dnsPolicy = %q: the server would ask itself", pod.DNSPolicy)
			}
			var spread []string
			for _, c := range pod.TopologySpreadConstraints {
				spread = append(spread, c.TopologyKey)
				selects(t, "topologySpreadConstraints", c.LabelSelector, all)
			}
			if diff := cmp.Diff([]string{corev1.LabelHostname, corev1.LabelTopologyZone}, spread); diff != "" {
				t.Errorf("topologySpreadConstraints (-want +got):\n%s", diff)
			}
			for _, taint := range []corev1.Taint{
				{Key: "CriticalAddonsOnly", Effect: corev1.TaintEffectNoSchedule},
				{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule},
			} {
				if !tolerates(pod, taint) {
					t.Errorf("a node with the taint %s gets no Pod", taint.Key)
				}
			}
		})
	}
}

func tolerates(pod corev1.PodSpec, taint corev1.Taint) bool {
	for _, to := range pod.Tolerations {
		if to.Key == taint.Key && to.Operator == corev1.TolerationOpExists && (to.Effect == "" || to.Effect == taint.Effect) {
			return true
		}
	}
	return false
}

// TestSelectors: what selects Pods selects these.
func TestSelectors(t *testing.T) {
	for name, all := range variants(t) {
		t.Run(name, func(t *testing.T) {
			selects(t, "Deployment", as[appsv1.Deployment](t, all, "Deployment").Spec.Selector, all)
			selects(t, "PodDisruptionBudget", as[policyv1.PodDisruptionBudget](t, all, "PodDisruptionBudget").Spec.Selector, all)
			policy := as[networkingv1.NetworkPolicy](t, all, "NetworkPolicy")
			selects(t, "NetworkPolicy", &policy.Spec.PodSelector, all)
			service := as[corev1.Service](t, all, "Service")
			selects(t, "Service", &metav1.LabelSelector{MatchLabels: service.Spec.Selector}, all)
		})
	}
}

func selects(t *testing.T, who string, selector *metav1.LabelSelector, all objects) {
	t.Helper()
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatalf("selector of %s: %v", who, err)
	}
	pod := labels.Set(as[appsv1.Deployment](t, all, "Deployment").Spec.Template.Labels)
	if s.Empty() || !s.Matches(pod) {
		t.Errorf("selector of %s: %q does not select Pods with %v, or selects everything", who, s, pod)
	}
}

// TestPorts: Service, container, probes, NetworkPolicy and config.yaml agree.
func TestPorts(t *testing.T) {
	type port struct {
		name     string
		protocol corev1.Protocol
		number   int32
	}
	want := []port{{"dns", "UDP", 53}, {"dns-tcp", "TCP", 53}, {"metrics", "TCP", 9153}}
	for name, all := range variants(t) {
		t.Run(name, func(t *testing.T) {
			c := onlyContainer(t, as[appsv1.Deployment](t, all, "Deployment").Spec.Template.Spec)
			var got []port
			for _, p := range c.Ports {
				got = append(got, port{p.Name, p.Protocol, p.ContainerPort})
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(port{})); diff != "" {
				t.Errorf("ports of the container (-want +got):\n%s", diff)
			}
			got = nil
			for _, p := range as[corev1.Service](t, all, "Service").Spec.Ports {
				if p.TargetPort != intstr.FromString(p.Name) {
					t.Errorf("port %s of the Service goes to %v", p.Name, p.TargetPort)
				}
				got = append(got, port{p.Name, p.Protocol, p.Port})
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(port{})); diff != "" {
				t.Errorf("ports of the Service (-want +got):\n%s", diff)
			}
			for probe, path := range map[*corev1.Probe]string{c.LivenessProbe: "/healthz", c.ReadinessProbe: "/readyz"} {
				if probe.HTTPGet.Path != path || probe.HTTPGet.Port != intstr.FromString("metrics") {
					t.Errorf("probe of %s: %v", path, probe.HTTPGet)
				}
			}
			cfg := readConfig(t, configText(t, all))
			for _, listen := range cfg.DNS.Listen {
				if addr := netip.MustParseAddrPort(listen); !addr.Addr().IsUnspecified() || addr.Port() != 53 {
					t.Errorf("listen: %s is not all addresses and port 53", listen)
				}
			}
			if admin := netip.MustParseAddrPort(cfg.Admin.Listen); !admin.Addr().IsUnspecified() || admin.Port() != 9153 {
				t.Errorf("admin.listen: %s is not all addresses and port 9153: probes come from the node", admin)
			}
		})
	}
}

// TestNetworkPolicy: DNS for all, metrics for those who are named.
func TestNetworkPolicy(t *testing.T) {
	for name, all := range variants(t) {
		t.Run(name, func(t *testing.T) {
			spec := as[networkingv1.NetworkPolicy](t, all, "NetworkPolicy").Spec
			for _, rule := range spec.Ingress {
				for _, p := range rule.Ports {
					if dns := p.Port.IntVal == 53; dns != (len(rule.From) == 0) {
						t.Errorf("port %v is open to %v", p.Port, rule.From)
					}
				}
				if len(rule.Ports) == 0 {
					t.Error("a rule opens all ports")
				}
			}
			if diff := cmp.Diff([]networkingv1.NetworkPolicyEgressRule{{}}, spec.Egress); diff != "" {
				t.Errorf("egress (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("no one reads metrics", func(t *testing.T) {
		all := rendered(t, valuesOf(t, "networkPolicy: {metricsFrom: []}"))
		if rules := as[networkingv1.NetworkPolicy](t, all, "NetworkPolicy").Spec.Ingress; len(rules) != 1 {
			t.Errorf("metricsFrom: [] leaves %v", rules)
		}
	})
	t.Run("none", func(t *testing.T) {
		if all := rendered(t, valuesOf(t, "networkPolicy: {enabled: false}")); all["NetworkPolicy/portolan"] != nil {
			t.Error("networkPolicy.enabled: false renders one")
		}
	})
}

// TestRights: the ClusterRole is what the source reads, and nothing else.
func TestRights(t *testing.T) {
	read := []string{"list", "watch"}
	least := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces", "services"}, Verbs: read},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: read},
	}
	withPods := append(least[:2:2], rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: read})
	all := variants(t)
	all["helm, pods not said"] = rendered(t, valuesOf(t, "config: {dns: {pods: null}}"))
	all["helm, pods disabled"] = rendered(t, valuesOf(t, "config: {dns: {pods: disabled}}"))
	all["helm, pods insecure"] = rendered(t, valuesOf(t, "config: {dns: {pods: insecure}}"))
	all["helm, other zones"] = rendered(t, valuesOf(t, "config: {dns: {pods: disabled, multicluster: clusterset.local, "+
		"external: {zones: [out.example], sources: [service, ingress, gateway]}}}"))
	all["helm, external Services"] = rendered(t, valuesOf(t, "config: {dns: {pods: disabled, external: {zones: [out.example]}}}"))
	withZones := append(least[:2:2],
		rbacv1.PolicyRule{APIGroups: []string{"multicluster.x-k8s.io"}, Resources: []string{"serviceimports"}, Verbs: read},
		rbacv1.PolicyRule{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"ingresses"}, Verbs: read},
		rbacv1.PolicyRule{APIGroups: []string{"gateway.networking.k8s.io"}, Resources: []string{"gateways", "httproutes"}, Verbs: read},
	)
	for name, all := range all {
		t.Run(name, func(t *testing.T) {
			want, dns := least, readConfig(t, configText(t, all)).DNS
			switch {
			case dns.Multicluster != "":
				want = withZones
			case dns.Pods == "verified":
				want = withPods
			}
			if diff := cmp.Diff(want, as[rbacv1.ClusterRole](t, all, "ClusterRole").Rules); diff != "" {
				t.Errorf("rules (-want +got):\n%s", diff)
			}
			binding := as[rbacv1.ClusterRoleBinding](t, all, "ClusterRoleBinding")
			pod := as[appsv1.Deployment](t, all, "Deployment").Spec.Template.Spec
			wantSubjects := []rbacv1.Subject{{Kind: "ServiceAccount", Name: pod.ServiceAccountName, Namespace: "kube-system"}}
			if diff := cmp.Diff(wantSubjects, binding.Subjects); diff != "" {
				t.Errorf("subjects (-want +got):\n%s", diff)
			}
			if binding.RoleRef.Name != "portolan" || binding.RoleRef.Kind != "ClusterRole" {
				t.Errorf("roleRef = %v", binding.RoleRef)
			}
		})
	}
}

// TestRightsAreDocumented: operate.md lists what the ClusterRole allows to read.
func TestRightsAreDocumented(t *testing.T) {
	t.Parallel()
	_, table, _ := strings.Cut(readFile(t, "../../docs/operate.md"), "\n**Permissions.** ")
	table, _, _ = strings.Cut(table, "\n**Ports.**")
	var listed, allowed []string
	for _, row := range regexp.MustCompile(`(?m)^\| (`+"`"+`.*?) \|`).FindAllStringSubmatch(table, -1) {
		for resource := range strings.SplitSeq(row[1], ", ") {
			listed = append(listed, strings.Trim(resource, "`"))
		}
	}
	all := rendered(t, valuesOf(t, "config: {dns: {pods: verified, multicluster: clusterset.local, "+
		"external: {zones: [out.example], sources: [service, ingress, gateway]}}}"))
	for _, rule := range as[rbacv1.ClusterRole](t, all, "ClusterRole").Rules {
		for _, resource := range rule.Resources {
			allowed = append(allowed, strings.TrimSuffix(resource+"."+rule.APIGroups[0], "."))
		}
	}
	slices.Sort(listed)
	slices.Sort(allowed)
	if diff := cmp.Diff(allowed, listed); diff != "" {
		t.Errorf("resources of operate.md (-ClusterRole +page):\n%s", diff)
	}
}

// TestFiles: the files that the command line and config.yaml name are where
// volumes put them, and what is written can be.
func TestFiles(t *testing.T) {
	for name, all := range variants(t) {
		t.Run(name, func(t *testing.T) {
			pod := as[appsv1.Deployment](t, all, "Deployment").Spec.Template.Spec
			c := onlyContainer(t, pod)
			want := []string{"serve", "--config", "/etc/portolan/config.yaml"}
			if diff := cmp.Diff(want, c.Args); diff != "" {
				t.Errorf("args (-want +got):\n%s", diff)
			}
			configs := volumeAt(t, pod, path.Dir(c.Args[2]))
			if configs.ConfigMap == nil || all["ConfigMap/"+configs.ConfigMap.Name] == nil {
				t.Errorf("volume of %s = %v, want the ConfigMap", c.Args[2], configs)
			}
			cfg := readConfig(t, configText(t, all))
			state := volumeAt(t, pod, path.Dir(cfg.Snapshot.File))
			if state.EmptyDir == nil || state.EmptyDir.SizeLimit.IsZero() {
				t.Errorf("volume of %s = %v, want an emptyDir with a sizeLimit", cfg.Snapshot.File, state)
			}
		})
	}
}

// TestEnd checks that a server that is told to stop answers until service proxies know
// that its Pod does not serve, and is not killed before it has sent its last answers.
func TestEnd(t *testing.T) {
	const (
		proxies = 2 * time.Second // kube-proxy changes rules once per second
		drain   = 5 * time.Second // for the last answers, and to write the snapshot
	)
	for name, all := range variants(t) {
		t.Run(name, func(t *testing.T) {
			pod := as[appsv1.Deployment](t, all, "Deployment").Spec.Template.Spec
			probe := onlyContainer(t, pod).ReadinessProbe
			fails := seconds(probe.PeriodSeconds*probe.FailureThreshold + probe.TimeoutSeconds)
			grace := seconds(int32(*pod.TerminationGracePeriodSeconds))
			lameduck := time.Duration(readConfig(t, configText(t, all)).Lameduck)
			if lameduck < fails+proxies || lameduck+drain > grace {
				t.Errorf("lameduck: %s, want at least %s (the readiness probe fails within %s) and at most %s (terminationGracePeriodSeconds: %s)",
					lameduck, fails+proxies, fails, grace-drain, grace)
			}
		})
	}
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

func volumeAt(t *testing.T, pod corev1.PodSpec, dir string) corev1.Volume {
	t.Helper()
	for _, m := range onlyContainer(t, pod).VolumeMounts {
		if m.MountPath != dir || m.SubPath != "" { // changes don't show below a subPath
			continue
		}
		for _, v := range pod.Volumes {
			if v.Name == m.Name {
				return v
			}
		}
	}
	t.Fatalf("no volume is mounted at %s", dir)
	return corev1.Volume{}
}

// TestResources: there is a memory limit, and no GOMEMLIMIT, which would keep
// the server from making its own of that.
func TestResources(t *testing.T) {
	for name, all := range variants(t) {
		t.Run(name, func(t *testing.T) {
			c := onlyContainer(t, as[appsv1.Deployment](t, all, "Deployment").Spec.Template.Spec)
			if c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() {
				t.Errorf("resources = %v", c.Resources)
			}
			if len(c.Env) > 0 {
				t.Errorf("env = %v", c.Env)
			}
		})
	}
}

// TestClusterDNS: as the cluster DNS, the Pods, and nothing else, have the label that
// the Service kube-dns selects; otherwise they have not, and Prometheus is told of
// them by the Service of their own.
func TestClusterDNS(t *testing.T) {
	for name, all := range variants(t) {
		t.Run(name, func(t *testing.T) {
			is := !strings.HasSuffix(name, "beside")
			d := as[appsv1.Deployment](t, all, "Deployment")
			if got := d.Spec.Template.Labels["k8s-app"] == "kube-dns"; got != is {
				t.Errorf("the Pods have the label: %t, want %t", got, is)
			}
			if d.Labels["k8s-app"] != "" || d.Spec.Selector.MatchLabels["k8s-app"] != "" {
				t.Errorf("the Deployment has the label: %v, selector %v", d.Labels, d.Spec.Selector)
			}
			s := as[corev1.Service](t, all, "Service")
			if got := s.Annotations["prometheus.io/scrape"] == "true"; got == is || s.Spec.ClusterIP != "" || s.Labels["k8s-app"] != "" {
				t.Errorf("Service %s: annotations %v, address %q, labels %v", s.Name, s.Annotations, s.Spec.ClusterIP, s.Labels)
			}
		})
	}
}

// TestClusterDNSService: the Service for a cluster that has none is that of kubeadm,
// and selects the Pods; Helm never deletes it.
func TestClusterDNSService(t *testing.T) {
	dualStack := corev1.IPFamilyPolicyRequireDualStack
	made := kustomized(t, "kube-dns")
	for name, tt := range map[string]struct {
		all    objects
		ips    []string
		policy *corev1.IPFamilyPolicy
	}{
		"kustomize":     {made, []string{"10.96.0.10"}, nil},
		"helm":          {rendered(t, valuesOf(t, "clusterDNS: {createService: true}")), []string{"10.96.0.10"}, nil},
		"another range": {rendered(t, valuesOf(t, "clusterDNS: {createService: true, ips: [172.20.0.10]}")), []string{"172.20.0.10"}, nil},
		"IPv6":          {rendered(t, valuesOf(t, `clusterDNS: {createService: true, ips: ["fd00:10:96::a"]}`)), []string{"fd00:10:96::a"}, nil},
		"dual-stack":    {rendered(t, valuesOf(t, `clusterDNS: {createService: true, ips: [10.96.0.10, "fd00:10:96::a"]}`)), []string{"10.96.0.10", "fd00:10:96::a"}, &dualStack},
	} {
		t.Run(name, func(t *testing.T) {
			s := serviceOf(t, tt.all, "kube-dns")
			want := corev1.ServiceSpec{
				ClusterIP: tt.ips[0], ClusterIPs: tt.ips, IPFamilyPolicy: tt.policy, Selector: map[string]string{"k8s-app": "kube-dns"},
				Ports: []corev1.ServicePort{ // numbers as kubeadm's, so that kubectl apply over its Service changes none
					{Name: "dns", Port: 53, Protocol: "UDP", TargetPort: intstr.FromInt32(53)},
					{Name: "dns-tcp", Port: 53, Protocol: "TCP", TargetPort: intstr.FromInt32(53)},
					{Name: "metrics", Port: 9153, Protocol: "TCP", TargetPort: intstr.FromInt32(9153)},
				},
			}
			if diff := cmp.Diff(want, s.Spec); diff != "" {
				t.Errorf("spec (-want +got):\n%s", diff)
			}
			if s.Labels["k8s-app"] != "kube-dns" || s.Annotations["prometheus.io/port"] != "9153" {
				t.Errorf("labels %v, annotations %v", s.Labels, s.Annotations)
			}
			if kept := s.Annotations["helm.sh/resource-policy"] == "keep"; kept != (name != "kustomize") {
				t.Errorf("helm keeps it: %t", kept)
			}
		})
	}
	if len(made) != 1 {
		t.Errorf("kustomize/kube-dns has %d objects: deleting any server would delete the Service", len(made))
	}
	if all := rendered(t, valuesOf(t, "clusterDNS: {enabled: false, createService: true}")); all["Service/kube-dns"] != nil {
		t.Error("next to another server, the chart makes the Service kube-dns")
	}
}

// TestNotes: what helm says at the end is the next step.
func TestNotes(t *testing.T) {
	for values, tt := range map[string]struct{ namespace, want string }{
		"{}":                                  {"kube-system", "scale deployment coredns --replicas 0"},
		"clusterDNS: {enabled: false}":        {"kube-system", "Have the existing DNS server forward these zones to it"},
		"clusterDNS: {createService: true}":   {"kube-system", "ask the Service kube-dns, at 10.96.0.10"},
		"config: {dns: {zones: [a.example]}}": {"dns", "with --namespace kube-system"},
	} {
		_, notes, err := renderChart(t, loaded(t), tt.namespace, valuesOf(t, values), clusterOf("v1.36.0"))
		if err != nil || !strings.Contains(notes, tt.want) {
			t.Errorf("with %s in %s: %v, want %q in\n%s", values, tt.namespace, err, tt.want, notes)
		}
	}
}

// TestServiceAddresses: the Service of the release has the addresses that are given.
func TestServiceAddresses(t *testing.T) {
	dualStack := corev1.IPFamilyPolicyRequireDualStack
	for values, want := range map[string]corev1.ServiceSpec{
		"{}":                                  {},
		"service: {clusterIPs: [10.96.0.11]}": {ClusterIP: "10.96.0.11", ClusterIPs: []string{"10.96.0.11"}},
		`service: {clusterIPs: [10.96.0.11, "fd00:10:96::b"]}`: {
			ClusterIP: "10.96.0.11", ClusterIPs: []string{"10.96.0.11", "fd00:10:96::b"}, IPFamilyPolicy: &dualStack,
		},
	} {
		got := as[corev1.Service](t, rendered(t, valuesOf(t, values)), "Service").Spec
		got.Type, got.Ports, got.Selector = "", nil, nil
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", values, diff)
		}
	}
}

// TestValues: a value of the chart has the effect that its name says.
func TestValues(t *testing.T) {
	pod := func(t *testing.T, values string) corev1.PodTemplateSpec {
		t.Helper()
		return as[appsv1.Deployment](t, rendered(t, valuesOf(t, values)), "Deployment").Spec.Template
	}
	digest := "sha256:" + strings.Repeat("0a", 32)
	for values, want := range map[string]string{
		"image: {repository: dns/portolan}":                    "dns/portolan:v0.1.0",
		"image: {tag: v9}":                                     "portolan:v9",
		"image: {tag: v9, digest: '" + digest + "'}":           "portolan@" + digest,
		"image: {repository: 'example.com:5000/p', tag: v1.2}": "example.com:5000/p:v1.2",
	} {
		if got := onlyContainer(t, pod(t, values).Spec).Image; got != want {
			t.Errorf("%s: image = %s, want %s", values, got, want)
		}
	}
	got := pod(t, "{podLabels: {team: dns}, podAnnotations: {a: b}, priorityClassName: '', nodeSelector: {x: z}, imagePullSecrets: [{name: pull}]}")
	if got.Labels["team"] != "dns" || got.Annotations["a"] != "b" || got.Spec.PriorityClassName != "" ||
		got.Spec.NodeSelector["x"] != "z" || got.Spec.ImagePullSecrets[0].Name != "pull" {
		t.Errorf("the Pod: %v", got)
	}
}

// TestValuesRefused: a value that is misspelled, or that Pods can't do without,
// renders nothing.
func TestValuesRefused(t *testing.T) {
	for _, values := range []string{
		"replica: 3",
		"service: {clusterIP: 10.96.0.10}",
		"service: {clusterIPs: [10.96.0.10, 'fd00::a', 10.96.0.11]}",
		"clusterDNS: {enable: true}",
		"clusterDNS: {createService: true, ips: []}",
		"config: {dns: {pods: all}}",
		"image: {digest: v1}",
		"resources: {limits: null}",
	} {
		if _, err := render(t, valuesOf(t, values)); err == nil {
			t.Errorf("helm template with %s: no error", values)
		}
	}
}

// TestRestart: Pods are replaced for keys that need a restart, and only then.
func TestRestart(t *testing.T) {
	pods := func(config string) corev1.PodTemplateSpec {
		all := rendered(t, valuesOf(t, "config: "+config))
		return as[appsv1.Deployment](t, all, "Deployment").Spec.Template
	}
	before := pods("{}")
	for config, restart := range map[string]bool{
		"{dns: {ttl: 30}}":                  false,
		"{dns: {pods: insecure}}":           true,
		"{lameduck: 12s}":                   true,
		"{log: {format: text}}":             true,
		"{log: {level: debug}}":             false,
		`{dns: {listen: ["[::]:53"]}}`:      true,
		`{admin: {listen: "[::]:9153"}}`:    true,
		"{dns: {tcp: {maxConnections: 9}}}": true,
		"{kubernetes: {qps: 9}}":            true,
		"{snapshot: {file: /var/lib/x/s}}":  true,
		"{kubernetes: {namespaces: [one]}}": true,
	} {
		if changed := !cmp.Equal(before, pods(config)); changed != restart {
			t.Errorf("config %s replaces Pods: %v, want %v", config, changed, restart)
		}
	}
}

// TestConfig: the server accepts every config.yaml that we ship.
func TestConfig(t *testing.T) {
	texts := map[string]string{
		"systemd":          readFile(t, filepath.Join(deployDir, "systemd", "config.yaml")),
		"systemd, gateway": readFile(t, filepath.Join(deployDir, "systemd", "gateway.yaml")),
	}
	for name, all := range variants(t) {
		texts[name] = configText(t, all)
	}
	for name, text := range texts {
		t.Run(name, func(t *testing.T) {
			cfg := readConfig(t, text)
			if err := cfg.Validate(); err != nil {
				t.Error(err)
			}
		})
	}
}

func configText(t *testing.T, all objects) string {
	t.Helper()
	data := as[corev1.ConfigMap](t, all, "ConfigMap").Data
	if len(data) != 1 || data["config.yaml"] == "" {
		t.Fatalf("the ConfigMap holds %v, want config.yaml", data)
	}
	return data["config.yaml"]
}

func readConfig(t *testing.T, text string) config.Config {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Read(file)
	if err != nil {
		t.Fatalf("config.Read: %v", err)
	}
	return cfg
}

func onlyContainer(t *testing.T, pod corev1.PodSpec) corev1.Container {
	t.Helper()
	if len(pod.Containers) != 1 || len(pod.InitContainers) != 0 {
		t.Fatalf("containers: %v and %v, want one", pod.Containers, pod.InitContainers)
	}
	return pod.Containers[0]
}
