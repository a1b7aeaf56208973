package deploy

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// matrix are values of the chart by what they are for, and their effects.
var matrix = map[string]struct {
	values string
	effect func(t *testing.T, all objects)
}{
	"replicas of another controller": {"replicas: null", func(t *testing.T, all objects) {
		t.Helper()
		if got := as[appsv1.Deployment](t, all, "Deployment").Spec.Replicas; got != nil {
			t.Errorf("replicas = %d: an upgrade would reset what the controller sets", *got)
		}
	}},
	"autoscaling": {"autoscaling: {enabled: true, minReplicas: 3, maxReplicas: 7, targetCPUUtilizationPercentage: 60, " +
		"behavior: {scaleDown: {stabilizationWindowSeconds: 600}}}", wantAutoscaling},
	"update strategy": {"updateStrategy: {rollingUpdate: {maxUnavailable: 1, maxSurge: 50%}}", func(t *testing.T, all objects) {
		t.Helper()
		got := as[appsv1.Deployment](t, all, "Deployment").Spec.Strategy
		if *got.RollingUpdate.MaxUnavailable != intstr.FromInt32(1) || *got.RollingUpdate.MaxSurge != intstr.FromString("50%") {
			t.Errorf("strategy = %v", got)
		}
	}},
	"no disruption budget": {"podDisruptionBudget: {enabled: false}", func(t *testing.T, all objects) {
		t.Helper()
		if all["PodDisruptionBudget/portolan"] != nil {
			t.Error("one is rendered")
		}
	}},
	"disruption budget": {"podDisruptionBudget: {minAvailable: 50%, unhealthyPodEvictionPolicy: IfHealthyBudget}", func(t *testing.T, all objects) {
		t.Helper()
		got := as[policyv1.PodDisruptionBudget](t, all, "PodDisruptionBudget").Spec
		if got.MaxUnavailable != nil || *got.MinAvailable != intstr.FromString("50%") || *got.UnhealthyPodEvictionPolicy != policyv1.IfHealthyBudget {
			t.Errorf("spec = %v", got)
		}
	}},
	"TLS and HTTPS": {`{config: {dns: {tls: {listen: ["0.0.0.0:8853", "[::]:8853"], certificate: /etc/tls/tls.crt, key: /etc/tls/tls.key}, ` +
		`https: {listen: ["0.0.0.0:8443"]}}}, extraVolumes: [{name: tls, secret: {secretName: dns-tls}}], ` +
		`extraVolumeMounts: [{name: tls, mountPath: /etc/tls, readOnly: true}]}`, wantEncrypted},
	"outside clients": {"service: {type: LoadBalancer, labels: {a: b, app.kubernetes.io/name: other}, annotations: {c: d}, clusterIPs: [10.96.0.11], " +
		"externalTrafficPolicy: Local, internalTrafficPolicy: Cluster, loadBalancerClass: example.com/lb, loadBalancerIP: 192.0.2.8, " +
		"loadBalancerSourceRanges: [192.0.2.0/24], ipFamilyPolicy: SingleStack}", wantOutside},
	externalAddresses: {"service: {externalIPs: [192.0.2.7]}", func(t *testing.T, all objects) {
		t.Helper()
		if got := as[corev1.Service](t, all, "Service").Spec.ExternalIPs; !slices.Equal(got, []string{"192.0.2.7"}) {
			t.Errorf("externalIPs = %v", got)
		}
	}},
	"ServiceMonitor": {"{serviceMonitor: {enabled: true, namespace: monitoring, labels: {release: prometheus}, interval: 30s, scrapeTimeout: 10s, " +
		"relabelings: [{action: labeldrop, regex: pod}], metricRelabelings: [{action: drop, regex: x, sourceLabels: [y]}]}}", wantMonitor},
	"PrometheusRule": {"prometheusRule: {enabled: true, namespace: monitoring, labels: {release: prometheus}}", wantRule},
	"dashboards":     {`dashboards: {enabled: true, namespace: monitoring, labels: {grafana_dashboard: "1"}, annotations: {grafana_folder: DNS}}`, wantDashboards},
	"an account that is there": {"serviceAccount: {create: false, name: dns}", func(t *testing.T, all objects) {
		t.Helper()
		if all["ServiceAccount/portolan"] != nil || all["ServiceAccount/dns"] != nil {
			t.Error("an account is rendered")
		}
		wantAccount(t, all, "dns")
	}},
	"the default account": {"serviceAccount: {create: false}", func(t *testing.T, all objects) {
		t.Helper()
		wantAccount(t, all, "default")
	}},
	"an account of a provider": {"serviceAccount: {name: dns, annotations: {example.com/role: reader}}", func(t *testing.T, all objects) {
		t.Helper()
		if got := as[corev1.ServiceAccount](t, all, "ServiceAccount"); got.Name != "dns" || got.Annotations["example.com/role"] != "reader" {
			t.Errorf("account %s with %v", got.Name, got.Annotations)
		}
		wantAccount(t, all, "dns")
	}},
	"common labels": {"commonLabels: {team: dns}", wantCommonLabels},
	"placement": {"{affinity: {nodeAffinity: {}}, topologySpreadConstraints: [{topologyKey: rack, maxSkew: 2, whenUnsatisfiable: ScheduleAnyway}, " +
		"{topologyKey: row, maxSkew: 1, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {a: b}}}]}", wantPlacement},
	"files of agents": {"node: {enabled: true, existingSecret: mine, extraVolumes: [{name: lists, configMap: {name: lists}}], " +
		"extraVolumeMounts: [{name: lists, mountPath: /etc/lists, readOnly: true}]}", func(t *testing.T, all objects) {
		t.Helper()
		if v := volumeAt(t, as[appsv1.DaemonSet](t, all, "DaemonSet").Spec.Template.Spec, "/etc/lists"); v.ConfigMap == nil || v.ConfigMap.Name != "lists" {
			t.Errorf("volume = %v", v)
		}
	}},
	"no NetworkPolicy":   {"networkPolicy: {enabled: false}", wantRendered},
	"beside another":     {"clusterDNS: {enabled: false}", wantRendered},
	"a new cluster":      {"clusterDNS: {createService: true}", wantRendered},
	"parts of a release": {"{webhook: {enabled: true, config: {clusterDNS: [10.96.0.10]}}, controller: {slices: {enabled: true}}, node: {enabled: true, existingSecret: mine}, gateway: {enabled: true}}", wantRendered},
}

// externalAddresses is a claim of the matrix whose values Kubernetes 1.36 deprecates.
const externalAddresses = "external addresses"

// TestChartMatrix: each of these values has its effect, and helm lint has nothing to
// say of any two of them together, nor of all.
func TestChartMatrix(t *testing.T) {
	for claim, tt := range matrix {
		t.Run(claim, func(t *testing.T) {
			tt.effect(t, rendered(t, valuesOf(t, tt.values)))
			for other := range matrix {
				if other >= claim {
					lints(t, util.MergeTables(valuesOf(t, tt.values), valuesOf(t, matrix[other].values)))
				}
			}
		})
	}
	everything := map[string]any{}
	for _, claim := range slices.Sorted(maps.Keys(matrix)) {
		everything = util.MergeTables(everything, valuesOf(t, matrix[claim].values))
	}
	lints(t, everything)
	lints(t, nil)
}

// lints wants no error and no warning of helm lint, and that the values render.
func lints(t *testing.T, values map[string]any) {
	t.Helper()
	version := common.KubeVersion{Version: "v1.36.0", Major: "1", Minor: "36"}
	for _, m := range lint.RunAll(chartDir, values, "kube-system", lint.WithKubeVersion(&version)).Messages {
		if m.Severity >= support.WarningSev {
			t.Errorf("helm lint with %v: %v", values, m)
		}
	}
	rendered(t, values) // fails where a key is rendered twice
}

func wantRendered(*testing.T, objects) {}

func wantAutoscaling(t *testing.T, all objects) {
	t.Helper()
	d := as[appsv1.Deployment](t, all, "Deployment")
	got := as[autoscalingv2.HorizontalPodAutoscaler](t, all, "HorizontalPodAutoscaler").Spec
	if d.Spec.Replicas != nil {
		t.Errorf("replicas = %d: an upgrade would reset what the autoscaler sets", *d.Spec.Replicas)
	}
	if c := onlyContainer(t, d.Spec.Template.Spec); c.Resources.Requests.Cpu().IsZero() {
		t.Error("the container requests no CPU, which utilization is a percentage of")
	}
	want := autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: d.Name},
		MinReplicas:    new(int32(3)), MaxReplicas: 7,
		Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
			Name:   corev1.ResourceCPU,
			Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: new(int32(60))},
		}}},
		Behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{
			ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: new(int32(600))},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
}

// wantEncrypted: ports 853 and 443 of the Service lead to the ports of config.yaml, the
// NetworkPolicy admits them, and the files are mounted.
func wantEncrypted(t *testing.T, all objects) {
	t.Helper()
	cfg := readConfig(t, configText(t, all))
	pod := as[appsv1.Deployment](t, all, "Deployment").Spec.Template.Spec
	c := onlyContainer(t, pod)
	for port, listen := range map[int32][]string{853: cfg.DNS.TLS.Listen, 443: cfg.DNS.HTTPS.Listen} {
		number := int32(netip.MustParseAddrPort(listen[0]).Port())
		at := slices.IndexFunc(as[corev1.Service](t, all, "Service").Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == port })
		if at < 0 {
			t.Fatalf("the Service has no port %d", port)
		}
		target := as[corev1.Service](t, all, "Service").Spec.Ports[at].TargetPort.StrVal
		if !slices.Contains(c.Ports, corev1.ContainerPort{Name: target, ContainerPort: number, Protocol: corev1.ProtocolTCP}) {
			t.Errorf("port %d leads to %s; the container has %v, config.yaml %v", port, target, c.Ports, listen)
		}
		open := func(r networkingv1.NetworkPolicyIngressRule) bool {
			return len(r.From) == 0 && slices.ContainsFunc(r.Ports, func(p networkingv1.NetworkPolicyPort) bool {
				return p.Port.IntVal == number && *p.Protocol == corev1.ProtocolTCP
			})
		}
		if !slices.ContainsFunc(as[networkingv1.NetworkPolicy](t, all, "NetworkPolicy").Spec.Ingress, open) {
			t.Errorf("the NetworkPolicy does not admit port %d", number)
		}
	}
	if v := volumeAt(t, pod, "/etc/tls"); v.Secret == nil || v.Secret.SecretName != "dns-tls" {
		t.Errorf("volume of the certificate: %v", v)
	}
}

// wantOutside: the Service has what is given, keeps the label that it is found by, and
// shows no metrics to clients outside.
func wantOutside(t *testing.T, all objects) {
	t.Helper()
	s := as[corev1.Service](t, all, "Service")
	policy := corev1.ServiceInternalTrafficPolicyCluster
	single := corev1.IPFamilyPolicySingleStack
	want := corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.96.0.11", ClusterIPs: []string{"10.96.0.11"},
		ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal, InternalTrafficPolicy: &policy, LoadBalancerClass: new("example.com/lb"),
		LoadBalancerIP: "192.0.2.8", LoadBalancerSourceRanges: []string{"192.0.2.0/24"}, IPFamilyPolicy: &single, Selector: s.Spec.Selector,
		Ports: []corev1.ServicePort{
			{Name: "dns", Port: 53, Protocol: "UDP", TargetPort: intstr.FromString("dns")},
			{Name: "dns-tcp", Port: 53, Protocol: "TCP", TargetPort: intstr.FromString("dns-tcp")},
		},
	}
	if diff := cmp.Diff(want, s.Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	if s.Labels["a"] != "b" || s.Labels["app.kubernetes.io/name"] != "portolan" || !maps.Equal(s.Annotations, map[string]string{"c": "d"}) {
		t.Errorf("labels %v, annotations %v", s.Labels, s.Annotations)
	}
}

// wantMonitor: the ServiceMonitor selects one Service of each part, by a port that it
// has.
func wantMonitor(t *testing.T, all objects) {
	t.Helper()
	parts := rendered(t, valuesOf(t, "{serviceMonitor: {enabled: true}, webhook: {enabled: true}, node: {enabled: true}, gateway: {enabled: true}, service: {type: LoadBalancer}, clusterDNS: {createService: true}}"))
	for want, all := range map[string]objects{"portolan-metrics": all, "portolan-gateway-metrics portolan-metrics portolan-node portolan-webhook": parts} {
		monitor := as[serviceMonitor](t, all, "ServiceMonitor").Spec
		selector, err := metav1.LabelSelectorAsSelector(&monitor.Selector)
		if err != nil {
			t.Fatal(err)
		}
		var selected []string
		for key, o := range all {
			name, is := strings.CutPrefix(key, "Service/")
			if !is {
				continue
			}
			s := serviceOf(t, all, o.name())
			scraped := slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == monitor.Endpoints[0].Port })
			if selector.Matches(labels.Set(s.Labels)) && scraped {
				selected = append(selected, name)
			}
		}
		slices.Sort(selected)
		if got := strings.Join(selected, " "); got != want {
			t.Errorf("it selects %s, want %s", got, want)
		}
	}
	monitor := as[serviceMonitor](t, all, "ServiceMonitor")
	e := monitor.Spec.Endpoints[0]
	if monitor.Metadata.Namespace != "monitoring" || monitor.Metadata.Labels["release"] != "prometheus" || e.Interval != "30s" ||
		e.ScrapeTimeout != "10s" || len(e.Relabelings) != 1 || len(e.MetricRelabelings) != 1 ||
		!slices.Equal(monitor.Spec.NamespaceSelector.MatchNames, []string{"kube-system"}) {
		t.Errorf("ServiceMonitor: %+v", monitor)
	}
	for key := range rendered(t, nil) {
		if strings.HasPrefix(key, "ServiceMonitor/") || key == "Service/portolan-metrics" {
			t.Errorf("%s is rendered where nobody asked for it", key)
		}
	}
}

// serviceMonitor has the fields of monitoring.coreos.com/v1 that the chart sets.
type serviceMonitor struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name, Namespace string
		Labels          map[string]string
	} `json:"metadata"`
	Spec struct {
		NamespaceSelector struct {
			MatchNames []string `json:"matchNames"`
		} `json:"namespaceSelector"`
		Selector  metav1.LabelSelector `json:"selector"`
		Endpoints []struct {
			Port              string           `json:"port"`
			Interval          string           `json:"interval"`
			ScrapeTimeout     string           `json:"scrapeTimeout"`
			Relabelings       []map[string]any `json:"relabelings"`
			MetricRelabelings []map[string]any `json:"metricRelabelings"`
		} `json:"endpoints"`
	} `json:"spec"`
}

// wantAccount: the Pods have the account, and the account the rights.
func wantAccount(t *testing.T, all objects, name string) {
	t.Helper()
	if got := as[appsv1.Deployment](t, all, "Deployment").Spec.Template.Spec.ServiceAccountName; got != name {
		t.Errorf("the Pods have the account %s, want %s", got, name)
	}
	want := []rbacv1.Subject{{Kind: "ServiceAccount", Name: name, Namespace: "kube-system"}}
	if diff := cmp.Diff(want, as[rbacv1.ClusterRoleBinding](t, all, "ClusterRoleBinding").Subjects); diff != "" {
		t.Errorf("subjects (-want +got):\n%s", diff)
	}
}

// wantCommonLabels: all objects and Pods of all parts have them, and nothing selects
// by them: a selector cannot be changed.
func wantCommonLabels(t *testing.T, _ objects) {
	t.Helper()
	const parts = "webhook: {enabled: true}, controller: {slices: {enabled: true}}, node: {enabled: true}, serviceMonitor: {enabled: true}, autoscaling: {enabled: true}, " +
		"gateway: {enabled: true, autoscaling: {enabled: true}, gatewayClass: {create: true}}"
	all := rendered(t, valuesOf(t, "{commonLabels: {team: dns}, "+parts+"}"))
	for key, o := range all {
		if got, _ := o["metadata"].(map[string]any)["labels"].(map[string]any); got["team"] != "dns" {
			t.Errorf("%s has not the label: %v", key, got)
		}
		spec, _ := o["spec"].(map[string]any)
		if template, is := spec["template"].(map[string]any); is {
			if got, _ := template["metadata"].(map[string]any)["labels"].(map[string]any); got["team"] != "dns" {
				t.Errorf("Pods of %s have not the label: %v", key, got)
			}
		}
	}
	plain := rendered(t, valuesOf(t, "{"+parts+"}"))
	for key, o := range all {
		got, _ := o["spec"].(map[string]any)
		want, _ := plain[key]["spec"].(map[string]any)
		for _, field := range []string{"selector", "podSelector"} {
			if diff := cmp.Diff(want[field], got[field]); diff != "" {
				t.Errorf("%s of %s (-without +with):\n%s", field, key, diff)
			}
		}
	}
}

// wantPlacement: what selects no Pods selects the servers.
func wantPlacement(t *testing.T, all objects) {
	t.Helper()
	d := as[appsv1.Deployment](t, all, "Deployment")
	var got []map[string]string
	for _, c := range d.Spec.Template.Spec.TopologySpreadConstraints {
		got = append(got, c.LabelSelector.MatchLabels)
	}
	if diff := cmp.Diff([]map[string]string{d.Spec.Selector.MatchLabels, {"a": "b"}}, got); diff != "" {
		t.Errorf("selectors of topologySpreadConstraints (-want +got):\n%s", diff)
	}
	if a := d.Spec.Template.Spec.Affinity; a == nil || a.NodeAffinity == nil {
		t.Errorf("affinity = %v", a)
	}
}

// TestChartRights: with rbac.create: false there is no role and no binding, of any
// part.
func TestChartRights(t *testing.T) {
	t.Parallel()
	all := rendered(t, valuesOf(t, "{rbac: {create: false}, webhook: {enabled: true}, controller: {slices: {enabled: true}}, node: {enabled: true}, gateway: {enabled: true}}"))
	for key := range all {
		if strings.Contains(key, "Role") {
			t.Errorf("%s is rendered", key)
		}
	}
}

// TestChartReadmeExample: the values that README.md shows have the effect it names.
func TestChartReadmeExample(t *testing.T) {
	t.Parallel()
	_, values, found := strings.Cut(readFile(t, chartDir+"/README.md"), "```yaml\n")
	values, _, ended := strings.Cut(values, "```\n")
	if !found || !ended {
		t.Fatal("README.md shows no values")
	}
	wantEncrypted(t, rendered(t, valuesOf(t, values)))
}

// TestChartListen: what has no port makes no port of the Service.
func TestChartListen(t *testing.T) {
	t.Parallel()
	_, err := render(t, valuesOf(t, `config: {dns: {tls: {listen: ["0.0.0.0"]}}}`))
	if err == nil || !strings.Contains(err.Error(), "config.dns.tls.listen: 0.0.0.0 has no port") {
		t.Errorf("helm template: %v", err)
	}
}

// TestChartOwnLabels: labels that would make two of the chart's are refused, with what
// to set instead.
func TestChartOwnLabels(t *testing.T) {
	t.Parallel()
	for _, values := range []string{"podLabels: {k8s-app: kube-dns}", "commonLabels: {k8s-app: dns}", "commonLabels: {app.kubernetes.io/name: dns}"} {
		if _, err := render(t, valuesOf(t, values)); err == nil || !strings.Contains(err.Error(), "clusterDNS.enabled sets k8s-app: kube-dns") {
			t.Errorf("helm template with %s: %v", values, err)
		}
	}
}
