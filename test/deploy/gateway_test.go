package deploy

import (
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	gateway "portolan.dev/portolan/internal/gateway/settings"
)

// gatewayName is what all objects of the gateway are called, but for its classes and its Service for Prometheus.
const gatewayName = "portolan-gateway"

// gatewayOf is what the chart renders for the gateway, with these values below gateway.
func gatewayOf(t *testing.T, values string) objects {
	t.Helper()
	return gatewayWith(t, "gateway: "+values)
}

// gatewayWith is what the chart renders for the gateway, with these values.
func gatewayWith(t *testing.T, values string) objects {
	t.Helper()
	return ofGateway(rendered(t, valuesOf(t, values)))
}

// ofGateway leaves only the objects of the gateway.
func ofGateway(all objects) objects {
	maps.DeleteFunc(all, func(_ string, o object) bool { return !isOfGateway(o) })
	return all
}

func isOfGateway(o object) bool {
	return strings.HasPrefix(o.name(), gatewayName) || o["kind"] == "IngressClass" || o["kind"] == "GatewayClass"
}

// gatewaysBehindService and gatewaysOnNodes are the ways of deploying the gateway.
func gatewaysBehindService(t *testing.T) map[string]objects {
	t.Helper()
	return map[string]objects{"kustomize/gateway": kustomized(t, "gateway"), "helm, Deployment": gatewayOf(t, "{enabled: true}")}
}

func gatewaysOnNodes(t *testing.T) map[string]objects {
	t.Helper()
	return map[string]objects{
		"kustomize/gateway-node": kustomized(t, "gateway-node"),
		"helm, DaemonSet":        gatewayOf(t, "{enabled: true, kind: DaemonSet}"),
	}
}

func gatewayVariants(t *testing.T) map[string]objects {
	t.Helper()
	all := gatewaysBehindService(t)
	maps.Copy(all, gatewaysOnNodes(t))
	return all
}

// gatewayPods returns the template of the Pods of a variant.
func gatewayPods(t *testing.T, all objects) corev1.PodTemplateSpec {
	t.Helper()
	if all["DaemonSet/"+gatewayName] != nil {
		return as[appsv1.DaemonSet](t, all, "DaemonSet").Spec.Template
	}
	return as[appsv1.Deployment](t, all, "Deployment").Spec.Template
}

// TestGatewayDisabled: nobody gets a gateway who has not asked for one, and who has gets the same server; with
// values of a chart that had none, too.
func TestGatewayDisabled(t *testing.T) {
	for key, o := range rendered(t, nil) {
		if isOfGateway(o) {
			t.Errorf("%s is rendered", key)
		}
	}
	of := optional{name: gatewayName, section: "gateway", enabled: "gateway: {enabled: true}"}
	of.test(t, "gateway: {enabled: true, kind: DaemonSet, config: {accessLog: json}, service: {type: NodePort}}")
}

// TestGatewayRefused: settings that can't be are refused before anything is there.
func TestGatewayRefused(t *testing.T) {
	for claim, c := range map[string]struct{ values, says string }{
		"killed before requests end": {"gateway: {enabled: true, terminationGracePeriodSeconds: 35}", "terminationGracePeriodSeconds"},
		"killed while it drains":     {"gateway: {enabled: true, config: {drain: {shutdown: 1m}}}", "terminationGracePeriodSeconds"},
		"killed as a lame duck":      {"{gateway: {enabled: true}, config: {lameduck: 20s}}", "terminationGracePeriodSeconds"},
		"statuses without addresses": {"gateway: {enabled: true, service: {type: NodePort}}", "gateway.config.publish"},
		"a Service that is not read": {"{gateway: {enabled: true}, config: {kubernetes: {namespaces: [shop]}}}", "must have kube-system"},
		"a Lease of one's own":       {"gateway: {enabled: true, config: {lease: a/b}}", "config"},
		"keys of one's own":          {"gateway: {enabled: true, config: {tls: {ticketSecret: a/b}}}", "config"},
		"a socket of one's own":      {"gateway: {enabled: true, config: {handover: /run/a}}", "config"},
		"no port":                    {"gateway: {enabled: true, ports: []}", "ports"},
		"no memory limit":            {"gateway: {enabled: true, resources: {limits: null}}", "resources"},
		"another kind":               {"gateway: {enabled: true, kind: StatefulSet}", "kind"},
		"an unknown value":           {"gateway: {enabled: true, hostNetwork: true}", "hostNetwork"},
	} {
		if _, err := render(t, valuesOf(t, c.values)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want an error with %q", claim, err, c.says)
		}
	}
	for _, values := range []string{
		"gateway: {enabled: true, terminationGracePeriodSeconds: 36}",
		"gateway: {enabled: true, service: {type: NodePort}, config: {publish: {addresses: [192.0.2.1]}}}",
		"{gateway: {enabled: true, kind: DaemonSet}, config: {kubernetes: {namespaces: [shop]}}}",
		"{gateway: {enabled: true}, config: {kubernetes: {namespaces: [shop, kube-system]}, lameduck: null}}",
	} {
		gatewayWith(t, values) // which fails if it can't be
	}
}

// TestGatewayChartIsKustomization: both ways give the same objects.
func TestGatewayChartIsKustomization(t *testing.T) {
	all := gatewayVariants(t)
	all["kustomize, with a GatewayClass"] = kustomized(t, "gateway")
	maps.Copy(all["kustomize, with a GatewayClass"], kustomized(t, "gateway-class"))
	all["helm, with a GatewayClass"] = gatewayOf(t, "{enabled: true, gatewayClass: {create: true}}")
	for kustomize, helm := range map[string]string{
		"kustomize/gateway": "helm, Deployment", "kustomize/gateway-node": "helm, DaemonSet",
		"kustomize, with a GatewayClass": "helm, with a GatewayClass",
	} {
		if diff := cmp.Diff(comparableOf(t, all[kustomize]), comparableOf(t, all[helm])); diff != "" {
			t.Errorf("objects (-%s +%s):\n%s", kustomize, helm, diff)
		}
	}
}

// TestGatewayKinds: nothing is rendered that nobody asked for.
func TestGatewayKinds(t *testing.T) {
	shared := []string{
		"ClusterRole", "ClusterRoleBinding", "ConfigMap", "IngressClass", "Role", "RoleBinding", "Secret", "Service",
		"ServiceAccount",
	}
	clusterWide := []string{"ClusterRole", "ClusterRoleBinding", "IngressClass"}
	check := func(name string, all objects, own ...string) {
		want, got := slices.Sorted(slices.Values(slices.Concat(shared, own))), []string(nil)
		for key, o := range all {
			kind := o["kind"].(string)
			got = append(got, kind)
			if ns := o["metadata"].(map[string]any)["namespace"]; ns != "kube-system" && !slices.Contains(clusterWide, kind) {
				t.Errorf("%s: %s is in namespace %v, want kube-system", name, key, ns)
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: kinds (-want +got):\n%s", name, diff)
		}
	}
	for name, all := range gatewaysBehindService(t) {
		check(name, all, "Deployment", "NetworkPolicy", "PodDisruptionBudget", "Service")
	}
	for name, all := range gatewaysOnNodes(t) {
		check(name, all, "DaemonSet")
	}
}

// documentedGatewayRights returns the rules of the ClusterRole and the Role in gateway.md.
func documentedGatewayRights(t *testing.T) (cluster, own []rbacv1.PolicyRule) {
	t.Helper()
	_, section, _ := strings.Cut(readFile(t, "../../docs/gateway.md"), "\n## Permissions\n")
	_, text, _ := strings.Cut(section, "```yaml\n")
	text, _, found := strings.Cut(text, "```\n")
	if !found {
		t.Fatal("gateway.md: no manifest in the section Permissions")
	}
	documented := objects{}
	documented.read(t, text)
	return as[rbacv1.ClusterRole](t, documented, "ClusterRole").Rules, as[rbacv1.Role](t, documented, "Role").Rules
}

// TestGatewayRights: a gateway has the rights of gateway.md and no others.
func TestGatewayRights(t *testing.T) {
	cluster, own := documentedGatewayRights(t)
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Name: gatewayName, Namespace: "kube-system"}}
	for name, all := range gatewayVariants(t) {
		no := false
		inCluster, inNamespace := as[rbacv1.ClusterRoleBinding](t, all, "ClusterRoleBinding"), as[rbacv1.RoleBinding](t, all, "RoleBinding")
		for what, diff := range map[string]string{
			"cluster-wide rules":            cmp.Diff(cluster, as[rbacv1.ClusterRole](t, all, "ClusterRole").Rules),
			"rules of its own namespace":    cmp.Diff(own, as[rbacv1.Role](t, all, "Role").Rules),
			"who has them in the cluster":   cmp.Diff(subjects, inCluster.Subjects),
			"who has them in the namespace": cmp.Diff(subjects, inNamespace.Subjects),
			"the role in the cluster":       cmp.Diff(rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: gatewayName}, inCluster.RoleRef),
			"the role in the namespace":     cmp.Diff(rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: gatewayName}, inNamespace.RoleRef),
			"the account's token":           cmp.Diff(&no, as[corev1.ServiceAccount](t, all, "ServiceAccount").AutomountServiceAccountToken),
			"the account":                   cmp.Diff(gatewayName, gatewayPods(t, all).Spec.ServiceAccountName),
		} {
			if diff != "" {
				t.Errorf("%s: %s (-want +got):\n%s", name, what, diff)
			}
		}
	}
}

// TestGatewayHardened: behind a Service a gateway has no privilege; on a node it has the node's network, one
// directory of it, and the capability to bind ports below 1024.
func TestGatewayHardened(t *testing.T) {
	yes, no, root, id := true, false, int64(0), int64(65532)
	directory := corev1.HostPathDirectoryOrCreate
	profile := &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	dropped := []corev1.Capability{"ALL"}
	for name, all := range gatewayVariants(t) {
		t.Run(name, func(t *testing.T) {
			pod := gatewayPods(t, all).Spec
			c := onlyContainer(t, pod)
			dns := corev1.DNSClusterFirst // for the collector of traces
			wantPod := &corev1.PodSecurityContext{RunAsNonRoot: &yes, RunAsUser: &id, RunAsGroup: &id, SeccompProfile: profile}
			want := &corev1.SecurityContext{
				AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes, Capabilities: &corev1.Capabilities{Drop: dropped},
			}
			var wantPaths, paths []corev1.HostPathVolumeSource
			if onNode := all["DaemonSet/"+gatewayName] != nil; onNode != pod.HostNetwork {
				t.Errorf("hostNetwork: %t", pod.HostNetwork)
			} else if onNode {
				dns, wantPod = corev1.DNSClusterFirstWithHostNet, &corev1.PodSecurityContext{SeccompProfile: profile}
				want.RunAsUser, want.Capabilities.Add = &root, []corev1.Capability{"NET_BIND_SERVICE"}
				wantPaths = []corev1.HostPathVolumeSource{{Path: "/run/portolan-gateway", Type: &directory}}
			}
			for _, v := range pod.Volumes {
				if v.HostPath != nil {
					paths = append(paths, *v.HostPath)
				}
			}
			for what, diff := range map[string]string{
				"the Pod's securityContext":       cmp.Diff(wantPod, pod.SecurityContext),
				"the container's securityContext": cmp.Diff(want, c.SecurityContext),
				"what it has of the node's files": cmp.Diff(wantPaths, paths),
				"who resolves names":              cmp.Diff(dns, pod.DNSPolicy),
				"arguments":                       cmp.Diff([]string{"gateway", "--config", "/etc/portolan/config.yaml"}, c.Args),
			} {
				if diff != "" {
					t.Errorf("%s (-want +got):\n%s", what, diff)
				}
			}
			if pod.HostPID || pod.HostIPC || c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() {
				t.Errorf("hostPID %v, hostIPC %v, resources %v", pod.HostPID, pod.HostIPC, c.Resources)
			}
			if len(c.Env) != 1 || c.Env[0].Name != "NODE_NAME" || c.Env[0].ValueFrom.FieldRef.FieldPath != "spec.nodeName" {
				t.Errorf("env = %v, want the name of the Node, and no GOMEMLIMIT", c.Env)
			}
		})
	}
}

// gatewaySettings returns the section of the gateway, as the real program reads it.
func gatewaySettings(t *testing.T, all objects) gateway.Compiled {
	t.Helper()
	cfg := readConfig(t, configText(t, all))
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	compiled, err := cfg.Compile()
	if err != nil {
		t.Fatal(err)
	}
	return compiled.Gateway
}

// TestGatewayFits: config.yaml, the account's rights, the Pods and what selects them agree.
func TestGatewayFits(t *testing.T) {
	for name, all := range gatewayVariants(t) {
		t.Run(name, func(t *testing.T) {
			pods := gatewayPods(t, all)
			cfg, settings := readConfig(t, configText(t, all)), gatewaySettings(t, all)
			leases := as[rbacv1.Role](t, all, "Role")
			if settings.LeaseNamespace != leases.Namespace || !slices.Equal([]string{settings.LeaseName}, leases.Rules[1].ResourceNames) {
				t.Errorf("the Lease %s/%s, rights in %s: %v", settings.LeaseNamespace, settings.LeaseName, leases.Namespace, leases.Rules)
			}
			tickets := as[corev1.Secret](t, all, "Secret")
			if settings.TicketNamespace != tickets.Namespace || settings.TicketName != tickets.Name ||
				!slices.Equal([]string{tickets.Name}, leases.Rules[2].ResourceNames) {
				t.Errorf("keys of tickets in %s/%s, rights for %v", settings.TicketNamespace, settings.TicketName, leases.Rules[2])
			}
			if class := as[networkingv1.IngressClass](t, all, "IngressClass"); class.Spec.Controller != settings.Compile.IngressController {
				t.Errorf("the IngressClass has the controller %s, want %s", class.Spec.Controller, settings.Compile.IngressController)
			}
			if v := volumeAt(t, pods.Spec, "/etc/portolan"); v.ConfigMap == nil || v.ConfigMap.Name != gatewayName {
				t.Errorf("volume of the configuration: %v", v)
			}
			// It is not killed while what is under way may go on.
			const reserve = 5 * time.Second
			grace := seconds(int32(*pods.Spec.TerminationGracePeriodSeconds))
			if ends := time.Duration(cfg.Lameduck) + settings.DrainShutdown; ends+reserve > grace {
				t.Errorf("it ends within %s, terminationGracePeriodSeconds is %s", ends, grace)
			}
			probe := onlyContainer(t, pods.Spec).ReadinessProbe
			if fails := seconds(probe.PeriodSeconds * probe.FailureThreshold); probe.HTTPGet != nil && time.Duration(cfg.Lameduck) < fails {
				t.Errorf("lameduck %s, the readiness probe fails within %s", time.Duration(cfg.Lameduck), fails)
			}
			metrics := serviceOf(t, all, gatewayName+"-metrics")
			_, port, _ := strings.Cut(cfg.Admin.Listen, "0.0.0.0:")
			if metrics.Spec.ClusterIP != corev1.ClusterIPNone || metrics.Annotations["prometheus.io/port"] != port ||
				metrics.Spec.Ports[0].Port != intstr.Parse(port).IntVal {
				t.Errorf("admin.listen is %s, the Service for Prometheus %v, %v", cfg.Admin.Listen, metrics.Annotations, metrics.Spec)
			}
			selectors := map[string]*metav1.LabelSelector{"the Service for Prometheus": {MatchLabels: metrics.Spec.Selector}}
			if all["DaemonSet/"+gatewayName] != nil {
				selectors["the DaemonSet"] = as[appsv1.DaemonSet](t, all, "DaemonSet").Spec.Selector
			} else {
				selectors["the Deployment"] = as[appsv1.Deployment](t, all, "Deployment").Spec.Selector
				selectors["the PodDisruptionBudget"] = as[policyv1.PodDisruptionBudget](t, all, "PodDisruptionBudget").Spec.Selector
				policy := as[networkingv1.NetworkPolicy](t, all, "NetworkPolicy")
				selectors["the NetworkPolicy"] = &policy.Spec.PodSelector
				selectors["the Service"] = &metav1.LabelSelector{MatchLabels: serviceOf(t, all, gatewayName).Spec.Selector}
				for _, spread := range pods.Spec.TopologySpreadConstraints {
					selectors["the spread by "+spread.TopologyKey] = spread.LabelSelector
				}
			}
			for what, selector := range selectors {
				if s, err := metav1.LabelSelectorAsSelector(selector); err != nil || s.Empty() || !s.Matches(labels.Set(pods.Labels)) {
					t.Errorf("selector of %s: %v does not select %v", what, selector, pods.Labels)
				}
			}
		})
	}
}

// TestGatewayPorts: ports 80 and 443 of the Service lead to those that the gateway binds, to which the
// NetworkPolicy admits all; metrics are for those who are named.
func TestGatewayPorts(t *testing.T) {
	all := gatewaysBehindService(t)
	all["helm, another offset"] = gatewayOf(t, "{enabled: true, config: {portOffset: 9000}}")
	all["helm, another port"] = gatewayOf(t, "{enabled: true, ports: [80, 443, 9443]}")
	all["helm, no offset"] = gatewayOf(t, "{enabled: true, config: {portOffset: 0}}")
	for name, all := range all {
		t.Run(name, func(t *testing.T) {
			c, settings := onlyContainer(t, gatewayPods(t, all).Spec), gatewaySettings(t, all)
			bound := map[string]int32{}
			for _, p := range c.Ports {
				bound[p.Name] = p.ContainerPort
			}
			service := serviceOf(t, all, gatewayName)
			var outside []int32
			var open []int32
			lowest := int32(1024)
			for _, p := range service.Spec.Ports {
				want := p.Port + int32(settings.PortOffset)
				if bound[p.TargetPort.StrVal] != want {
					t.Errorf("port %d of the Service leads to %v of %v, the gateway binds %d", p.Port, p.TargetPort, bound, want)
				}
				outside, open, lowest = append(outside, p.Port), append(open, want), min(lowest, want)
			}
			want := []int32{80, 443}
			if name == "helm, another port" {
				want = append(want, 9443)
			}
			if service.Spec.Type != corev1.ServiceTypeLoadBalancer || !slices.Equal(outside, want) {
				t.Errorf("Service: %v", service.Spec)
			}
			if key := settings.Compile.Publish.Service; key.Namespace != service.Namespace || key.Name != service.Name {
				t.Errorf("statuses show the addresses of %s", key)
			}
			if granted := len(c.SecurityContext.Capabilities.Add) > 0; granted != (lowest < 1024) {
				t.Errorf("capabilities %v for port %d", c.SecurityContext.Capabilities.Add, lowest)
			}
			rules := as[networkingv1.NetworkPolicy](t, all, "NetworkPolicy").Spec.Ingress
			var admitted []int32
			for _, p := range rules[0].Ports {
				admitted = append(admitted, p.Port.IntVal)
			}
			if len(rules) != 2 || len(rules[0].From) > 0 || !slices.Equal(admitted, open) || len(rules[1].From) == 0 ||
				rules[1].Ports[0].Port.IntVal != bound["metrics"] {
				t.Errorf("ingress %v, want %v for all and %d for some", rules, open, bound["metrics"])
			}
			for probe, path := range map[*corev1.Probe]string{c.LivenessProbe: "/healthz", c.ReadinessProbe: "/readyz"} {
				if probe.HTTPGet.Path != path || probe.HTTPGet.Port != intstr.FromString("metrics") {
					t.Errorf("probe of %s: %v", path, probe.HTTPGet)
				}
			}
		})
	}
}

// TestGatewayStaysUp: gateways are on several nodes, and a new one is ready before an old one ends.
func TestGatewayStaysUp(t *testing.T) {
	for name, all := range gatewaysBehindService(t) {
		d := as[appsv1.Deployment](t, all, "Deployment")
		var spread []string
		for _, c := range d.Spec.Template.Spec.TopologySpreadConstraints {
			spread = append(spread, c.TopologyKey)
		}
		if diff := cmp.Diff([]string{corev1.LabelHostname, corev1.LabelTopologyZone}, spread); diff != "" {
			t.Errorf("%s: topologySpreadConstraints (-want +got):\n%s", name, diff)
		}
		budget := as[policyv1.PodDisruptionBudget](t, all, "PodDisruptionBudget").Spec.MaxUnavailable
		if *d.Spec.Replicas != 2 || *d.Spec.Strategy.RollingUpdate.MaxUnavailable != intstr.FromInt32(0) || *budget != intstr.FromInt32(1) {
			t.Errorf("%s: replicas %d, strategy %v, disruption budget %s", name, *d.Spec.Replicas, d.Spec.Strategy, budget)
		}
	}
}

// TestGatewayUpgrade: on a node, a gateway can stand beside the one that it replaces, gets its ports at a socket
// that is there for both, and answers the probes that are its own.
func TestGatewayUpgrade(t *testing.T) {
	for name, all := range gatewaysOnNodes(t) {
		t.Run(name, func(t *testing.T) {
			pod := standsBeside(t, all)
			cfg, settings := readConfig(t, configText(t, all)), gatewaySettings(t, all)
			if v := volumeAt(t, pod, path.Dir(settings.Handover)); v.HostPath == nil || v.HostPath.Path != path.Dir(settings.Handover) {
				t.Errorf("%s is in %v, want a directory of the node", settings.Handover, v)
			}
			if !slices.Equal(cfg.Admin.Probes, []string{agentProbes}) || !settings.PublishNode || settings.PortOffset != 0 {
				t.Errorf("admin.probes %v, publish.node %t, portOffset %d", cfg.Admin.Probes, settings.PublishNode, settings.PortOffset)
			}
		})
	}
}

// TestGatewayClasses: the classes have the controllers of the configuration; a GatewayClass is only for clusters
// that have the kind, unless values say otherwise.
func TestGatewayClasses(t *testing.T) {
	const kind = "gateway.networking.k8s.io/v1/GatewayClass"
	with := clusterOf("v1.36.0")
	with.APIVersions = append(slices.Clone(with.APIVersions), kind)
	for values, want := range map[string]struct{ without, with bool }{
		"{enabled: true}": {false, true},
		"{enabled: true, gatewayClass: {create: true}}":  {true, true},
		"{enabled: true, gatewayClass: {create: false}}": {false, false},
		"{enabled: false}": {false, false},
	} {
		for cluster, want := range map[bool]bool{false: want.without, true: want.with} {
			capabilities := clusterOf("v1.36.0")
			if cluster {
				capabilities = with
			}
			all, _, err := renderChart(t, loaded(t), "kube-system", valuesOf(t, "gateway: "+values), capabilities)
			if err != nil {
				t.Fatal(err)
			}
			if made := all["GatewayClass/portolan"] != nil; made != want {
				t.Errorf("%s, the cluster has the kind: %t; a GatewayClass is made: %t, want %t", values, cluster, made, want)
			}
		}
	}
	all := gatewayOf(t, "{enabled: true, gatewayClass: {create: true, name: edge}, ingressClass: {name: inside, default: true}, "+
		"config: {controller: example.com/gateway, ingress: {controller: example.com/ingress}}}")
	ingress := as[networkingv1.IngressClass](t, all, "IngressClass")
	spec, _ := all["GatewayClass/edge"]["spec"].(map[string]any)
	if ingress.Name != "inside" || ingress.Annotations[networkingv1.AnnotationIsDefaultIngressClass] != "true" ||
		ingress.Spec.Controller != "example.com/ingress" || spec["controllerName"] != "example.com/gateway" {
		t.Errorf("IngressClass %v, GatewayClass %v", ingress, spec)
	}
	if all := gatewayOf(t, "{enabled: true, ingressClass: {create: false}}"); all["IngressClass/portolan"] != nil {
		t.Error("ingressClass.create: false renders one")
	}
}

// TestGatewayValues: a value has the effect that its name says.
func TestGatewayValues(t *testing.T) {
	all := gatewayWith(t, `{image: {tag: v9}, config: {log: {level: debug}, kubernetes: {qps: 9}, lameduck: 3s}, gateway: {enabled: true, replicas: 3,
terminationGracePeriodSeconds: 99, priorityClassName: "", nodeSelector: {a: b}, tolerations: [{operator: Exists}],
resources: {limits: {memory: 1Gi}}, config: {trustedClients: [192.0.2.0/24], ingress: {certificate: /etc/tls/tls.crt, key: /etc/tls/tls.key}},
extraVolumes: [{name: tls, secret: {secretName: default-tls}}], extraVolumeMounts: [{name: tls, mountPath: /etc/tls, readOnly: true}],
service: {labels: {a: b}, annotations: {c: d}, externalTrafficPolicy: Local, loadBalancerClass: example.com/lb, loadBalancerSourceRanges: [192.0.2.0/24]}}}`)
	d := as[appsv1.Deployment](t, all, "Deployment")
	pod := d.Spec.Template.Spec
	c := onlyContainer(t, pod)
	if *d.Spec.Replicas != 3 || *pod.TerminationGracePeriodSeconds != 99 || pod.PriorityClassName != "" || pod.NodeSelector["a"] != "b" ||
		len(pod.Tolerations) != 1 || c.Resources.Limits.Memory().String() != "1Gi" || c.Image != "portolan:v9" {
		t.Errorf("the Deployment: %v", d.Spec)
	}
	if v := volumeAt(t, pod, "/etc/tls"); v.Secret == nil || v.Secret.SecretName != "default-tls" {
		t.Errorf("volume of the certificate: %v", v)
	}
	cfg, settings := readConfig(t, configText(t, all)), gatewaySettings(t, all)
	if cfg.Log.Level != "debug" || cfg.Kubernetes.QPS != 9 || time.Duration(cfg.Lameduck) != 3*time.Second || len(settings.Trusted) != 1 {
		t.Errorf("config.yaml: %s", configText(t, all))
	}
	s := serviceOf(t, all, gatewayName)
	if s.Labels["a"] != "b" || s.Annotations["c"] != "d" || s.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal ||
		*s.Spec.LoadBalancerClass != "example.com/lb" || !slices.Equal(s.Spec.LoadBalancerSourceRanges, []string{"192.0.2.0/24"}) {
		t.Errorf("Service: %v", s)
	}
	scaled := gatewayOf(t, "{enabled: true, autoscaling: {enabled: true, minReplicas: 3, maxReplicas: 7}}")
	scaler := as[autoscalingv2.HorizontalPodAutoscaler](t, scaled, "HorizontalPodAutoscaler").Spec
	if as[appsv1.Deployment](t, scaled, "Deployment").Spec.Replicas != nil || *scaler.MinReplicas != 3 || scaler.MaxReplicas != 7 ||
		scaler.ScaleTargetRef != (autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: gatewayName}) {
		t.Errorf("autoscaler: %v", scaler)
	}
	nodes := gatewayOf(t, "{enabled: true, kind: DaemonSet, admin: '[::]:9256', maxSurge: 10%, handoverDir: /run/edge, config: {publish: {addresses: [192.0.2.1]}}}")
	if surge := as[appsv1.DaemonSet](t, nodes, "DaemonSet").Spec.UpdateStrategy.RollingUpdate.MaxSurge; *surge != intstr.FromString("10%") {
		t.Errorf("maxSurge %s", surge)
	}
	settings = gatewaySettings(t, nodes)
	if port := serviceOf(t, nodes, gatewayName+"-metrics").Spec.Ports[0].Port; port != 9256 || settings.Handover != "/run/edge/socket" || settings.PublishNode {
		t.Errorf("metrics at port %d, handover at %s, publish.node %t", port, settings.Handover, settings.PublishNode)
	}
}

// TestGatewayNotes: what helm says at the end is of the gateway where there is one, and names what it can't look at.
func TestGatewayNotes(t *testing.T) {
	for values, want := range map[string][]string{
		"{}":                       nil,
		"gateway: {enabled: true}": {"get deployment,service portolan-gateway", "ingressClassName portolan"},
		"gateway: {enabled: true, kind: DaemonSet, ingressClass: {create: false}}": {"get daemonset portolan-gateway"},
		"{gateway: {enabled: true}, config: {kubernetes: {serviceSelector: a=b}}}": {"get deployment", "ingressClassName portolan", "gateway.service.labels"},
	} {
		_, notes, err := renderChart(t, loaded(t), "kube-system", valuesOf(t, values), clusterOf("v1.36.0"))
		if err != nil {
			t.Fatal(err)
		}
		for _, words := range []string{"get deployment", "get daemonset", "ingressClassName portolan", "gateway.service.labels"} {
			wanted := slices.ContainsFunc(want, func(w string) bool { return strings.HasPrefix(w, words) })
			if got := strings.Contains(notes, words); got != wanted {
				t.Errorf("with %s: %q is said: %t, want %t:\n%s", values, words, got, wanted, notes)
			}
		}
	}
}
