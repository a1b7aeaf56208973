package deploy

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// hookName is what all objects of the webhook are called.
const hookName = "portolan-webhook"

// webhookVariants are the ways of deploying the webhook that we ship.
func webhookVariants(t *testing.T) map[string]objects {
	t.Helper()
	return map[string]objects{"kustomize/webhook": kustomized(t, "webhook"), "helm, webhook": hook(t, "{}")}
}

// hook is what the chart renders for the webhook, with these values below
// webhook, and without what it renders for the server.
func hook(t *testing.T, webhook string) objects {
	t.Helper()
	values := valuesOf(t, "webhook: "+webhook)
	values["webhook"].(map[string]any)["enabled"] = true
	return hookIn(t, "kube-system", values)
}

// hookIn is hook of a release in a namespace.
func hookIn(t *testing.T, namespace string, values map[string]any) objects {
	t.Helper()
	all, err := renderIn(t, namespace, values)
	if err != nil {
		t.Fatalf("helm template with %v: %v", values, err)
	}
	for key, o := range all {
		if o.name() != hookName {
			delete(all, key)
		}
	}
	return all
}

// TestWebhookDisabled: nobody gets a webhook who has not asked for one, and who
// has gets the same server; with values of a chart that had none, too.
func TestWebhookDisabled(t *testing.T) {
	of := optional{name: hookName, section: "webhook", enabled: "webhook: {enabled: true}"}
	of.test(t, "webhook: {enabled: true, config: {deny: [pod-fqdn-too-long]}}")
}

// TestWebhookVersion: the chart is for older clusters, too, the webhook is not.
func TestWebhookVersion(t *testing.T) {
	old := clusterOf("v1.27.9")
	if _, _, err := renderChart(t, loaded(t), "kube-system", nil, old); err != nil {
		t.Error(err)
	}
	if _, _, err := renderChart(t, loaded(t), "kube-system", valuesOf(t, "webhook: {enabled: true}"), old); err == nil {
		t.Error("a webhook in Kubernetes 1.27: no error")
	}
}

// TestWebhookNotes: what helm says at the end is of the webhook where there is
// one.
func TestWebhookNotes(t *testing.T) {
	for values, want := range map[string]bool{"{}": false, "webhook: {enabled: true}": true} {
		_, notes, err := renderChart(t, loaded(t), "kube-system", valuesOf(t, values), clusterOf("v1.36.0"))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(notes, "ClusterFirstWithAutopath"); got != want || strings.Contains(notes, "does not yet") {
			t.Errorf("with %s: %s", values, notes)
		}
	}
}

// TestWebhookChartIsKustomization: both ways give the same objects.
func TestWebhookChartIsKustomization(t *testing.T) {
	all := webhookVariants(t)
	if diff := cmp.Diff(comparableOf(t, all["kustomize/webhook"]), comparableOf(t, all["helm, webhook"])); diff != "" {
		t.Errorf("objects (-kustomize +helm):\n%s", diff)
	}
}

// TestWebhookKinds: nothing is rendered that nobody asked for.
func TestWebhookKinds(t *testing.T) {
	want := []string{
		"ClusterRole", "ClusterRoleBinding", "ConfigMap", "Deployment", "MutatingWebhookConfiguration", "NetworkPolicy",
		"PodDisruptionBudget", "Role", "RoleBinding", "Secret", "Service", "ServiceAccount", "ValidatingWebhookConfiguration",
	}
	for name, all := range webhookVariants(t) {
		var got []string
		for _, o := range all {
			got = append(got, o["kind"].(string))
			clusterWide := slices.Contains([]string{"ClusterRole", "ClusterRoleBinding", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}, o["kind"].(string))
			if ns := o["metadata"].(map[string]any)["namespace"]; !clusterWide && ns != "kube-system" {
				t.Errorf("%s: %s is in namespace %v, want kube-system", name, o.key(), ns)
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: kinds (-want +got):\n%s", name, diff)
		}
	}
}

// TestWebhookHardened: every field that takes a privilege away is there, and it
// has no right but those that it needs.
func TestWebhookHardened(t *testing.T) {
	yes, no, id := true, false, int64(65532)
	wantPod := &corev1.PodSecurityContext{
		RunAsNonRoot: &yes, RunAsUser: &id, RunAsGroup: &id,
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	wantContainer := &corev1.SecurityContext{
		AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	own := []string{hookName}
	wantCluster := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}},
		{
			APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"},
			ResourceNames: own, Verbs: []string{"get", "patch"},
		},
	}
	wantOwn := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: own, Verbs: []string{"get", "update"}},
	}
	wantSubjects := []rbacv1.Subject{{Kind: "ServiceAccount", Name: hookName, Namespace: "kube-system"}}
	for name, all := range webhookVariants(t) {
		t.Run(name, func(t *testing.T) {
			pod := as[appsv1.Deployment](t, all, "Deployment").Spec.Template.Spec
			c := onlyContainer(t, pod)
			account := as[corev1.ServiceAccount](t, all, "ServiceAccount")
			for what, diff := range map[string]string{
				"the Pod's securityContext":       cmp.Diff(wantPod, pod.SecurityContext),
				"the container's securityContext": cmp.Diff(wantContainer, c.SecurityContext),
				"cluster-wide rules":              cmp.Diff(wantCluster, as[rbacv1.ClusterRole](t, all, "ClusterRole").Rules),
				"rules of its own namespace":      cmp.Diff(wantOwn, as[rbacv1.Role](t, all, "Role").Rules),
				"who has them in the cluster":     cmp.Diff(wantSubjects, as[rbacv1.ClusterRoleBinding](t, all, "ClusterRoleBinding").Subjects),
				"who has them in the namespace":   cmp.Diff(wantSubjects, as[rbacv1.RoleBinding](t, all, "RoleBinding").Subjects),
				"the account's token":             cmp.Diff(&no, account.AutomountServiceAccountToken),
			} {
				if diff != "" {
					t.Errorf("%s (-want +got):\n%s", what, diff)
				}
			}
			// What is not said of the data stays as the webhook wrote it.
			if s := as[corev1.Secret](t, all, "Secret"); s.Name != hookName || s.Data != nil || s.StringData != nil {
				t.Errorf("Secret %s with data, want %s with none", s.Name, hookName)
			}
			if pod.HostNetwork || pod.HostPID || pod.HostIPC {
				t.Error("the Pod shares a namespace with its node")
			}
			if pod.ServiceAccountName != hookName || c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() {
				t.Errorf("account %s, resources %v", pod.ServiceAccountName, c.Resources)
			}
			if rules := as[networkingv1.NetworkPolicy](t, all, "NetworkPolicy").Spec.Ingress; len(rules) != 2 ||
				len(rules[0].From) != 0 || len(rules[0].Ports) != 1 || rules[0].Ports[0].Port.IntVal != 8443 || len(rules[1].From) == 0 {
				t.Errorf("ingress %v, want 8443 for all and metrics for some", rules)
			}
		})
	}
}

// TestWebhookRegistered: the API server asks the Service, and goes on where that
// does not answer; nothing that the webhook needs to start waits for it.
func TestWebhookRegistered(t *testing.T) {
	variants := webhookVariants(t)
	variants["helm, another namespace"] = hookIn(t, "dns", valuesOf(t, "webhook: {enabled: true}"))
	for name, all := range variants {
		t.Run(name, func(t *testing.T) {
			namespace := as[corev1.Service](t, all, "Service").Namespace
			cfg := readConfig(t, configText(t, all))
			if cfg.Webhook.Service != namespace+"/"+hookName {
				t.Errorf("webhook.service is %s, want %s/%s", cfg.Webhook.Service, namespace, hookName)
			}
			check := func(name, path string, client admissionregistrationv1.WebhookClientConfig, selector *metav1.LabelSelector,
				policy *admissionregistrationv1.FailurePolicyType, effects *admissionregistrationv1.SideEffectClass, timeout *int32) {
				t.Helper()
				port := int32(443)
				want := &admissionregistrationv1.ServiceReference{Namespace: namespace, Name: hookName, Path: &path, Port: &port}
				if diff := cmp.Diff(want, client.Service); diff != "" || client.CABundle != nil {
					t.Errorf("%s: the Service (-want +got):\n%s", name, diff)
				}
				if *policy != admissionregistrationv1.Ignore || *effects != admissionregistrationv1.SideEffectClassNone {
					t.Errorf("%s: failurePolicy %s, sideEffects %s", name, *policy, *effects)
				}
				if server := time.Duration(*timeout) * time.Second; server <= time.Duration(cfg.Webhook.Timeout) {
					t.Errorf("%s: the API server waits for %s, and a review may take %s", name, server, time.Duration(cfg.Webhook.Timeout))
				}
				s, err := metav1.LabelSelectorAsSelector(selector)
				if err != nil {
					t.Fatal(err)
				}
				for _, ns := range []string{"kube-system", namespace} {
					for _, policy := range []string{"", "ClusterFirstWithAutopath"} {
						if s.Matches(labels.Set{"kubernetes.io/metadata.name": ns, "portolan.dev/dns-policy": policy}) {
							t.Errorf("%s: it is asked about %s", name, ns)
						}
					}
				}
			}
			m := as[admissionregistrationv1.MutatingWebhookConfiguration](t, all, "MutatingWebhookConfiguration")
			for _, w := range m.Webhooks {
				check(w.Name, "/mutate", w.ClientConfig, w.NamespaceSelector, w.FailurePolicy, w.SideEffects, w.TimeoutSeconds)
			}
			v := as[admissionregistrationv1.ValidatingWebhookConfiguration](t, all, "ValidatingWebhookConfiguration")
			for _, w := range v.Webhooks {
				check(w.Name, "/validate", w.ClientConfig, w.NamespaceSelector, w.FailurePolicy, w.SideEffects, w.TimeoutSeconds)
			}
			// Of each Pod one of the two is asked.
			for _, set := range []labels.Set{{}, {"portolan.dev/dns-policy": "off"}, {"portolan.dev/dns-policy": "clusterFirstWithAutopath"}} {
				asked := 0
				for _, w := range m.Webhooks {
					if s, err := metav1.LabelSelectorAsSelector(w.NamespaceSelector); err == nil && s.Matches(set) {
						asked++
					}
				}
				if asked != 1 {
					t.Errorf("about Pods of a Namespace with %v %d webhooks are asked", set, asked)
				}
			}
		})
	}
}

// TestWebhookFits: Service, container, probes, selectors and config.yaml agree,
// and it stays up while nodes and Pods come and go.
func TestWebhookFits(t *testing.T) {
	for name, all := range webhookVariants(t) {
		t.Run(name, func(t *testing.T) {
			d := as[appsv1.Deployment](t, all, "Deployment")
			pod := d.Spec.Template.Spec
			c := onlyContainer(t, pod)
			ports := map[string]int32{}
			for _, p := range c.Ports {
				ports[p.Name] = p.ContainerPort
			}
			if diff := cmp.Diff(map[string]int32{"webhook": 8443, "metrics": 9153}, ports); diff != "" {
				t.Errorf("ports (-want +got):\n%s", diff)
			}
			service := as[corev1.Service](t, all, "Service")
			for _, p := range service.Spec.Ports {
				if p.TargetPort != intstr.FromString(p.Name) || p.Name == "webhook" && p.Port != 443 {
					t.Errorf("port %v of the Service", p)
				}
			}
			for probe, path := range map[*corev1.Probe]string{c.LivenessProbe: "/healthz", c.ReadinessProbe: "/readyz"} {
				if probe.HTTPGet.Path != path || probe.HTTPGet.Port != intstr.FromString("metrics") {
					t.Errorf("probe of %s: %v", path, probe.HTTPGet)
				}
			}
			if diff := cmp.Diff([]string{"webhook", "--config", "/etc/portolan/config.yaml"}, c.Args); diff != "" {
				t.Errorf("args (-want +got):\n%s", diff)
			}
			if v := volumeAt(t, pod, "/etc/portolan"); v.ConfigMap == nil || v.ConfigMap.Name != hookName {
				t.Errorf("volume of the configuration: %v", v)
			}
			cfg := readConfig(t, configText(t, all))
			if cfg.Webhook.Listen != "0.0.0.0:8443" || cfg.Admin.Listen != "0.0.0.0:9153" || len(cfg.Webhook.ClusterDNS) == 0 {
				t.Errorf("config.yaml: %+v, admin %s", cfg.Webhook, cfg.Admin.Listen)
			}
			if grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second; time.Duration(cfg.Lameduck) >= grace || cfg.Lameduck == 0 {
				t.Errorf("lameduck %s, grace %s", time.Duration(cfg.Lameduck), grace)
			}
			selects(t, "Deployment", d.Spec.Selector, all)
			selects(t, "PodDisruptionBudget", as[policyv1.PodDisruptionBudget](t, all, "PodDisruptionBudget").Spec.Selector, all)
			policy := as[networkingv1.NetworkPolicy](t, all, "NetworkPolicy")
			selects(t, "NetworkPolicy", &policy.Spec.PodSelector, all)
			selects(t, "Service", &metav1.LabelSelector{MatchLabels: service.Spec.Selector}, all)
			for _, spread := range pod.TopologySpreadConstraints {
				selects(t, "topologySpreadConstraints", spread.LabelSelector, all)
			}
			server := as[appsv1.Deployment](t, kustomized(t, "base"), "Deployment")
			if s, err := metav1.LabelSelectorAsSelector(server.Spec.Selector); err != nil || s.Matches(labels.Set(d.Spec.Template.Labels)) {
				t.Error("the server's Deployment selects the webhook's Pods")
			}
			if *d.Spec.Replicas < 2 || *d.Spec.Strategy.RollingUpdate.MaxUnavailable != intstr.FromInt32(0) || pod.DNSPolicy != corev1.DNSDefault {
				t.Errorf("replicas %d, strategy %v, dnsPolicy %s", *d.Spec.Replicas, d.Spec.Strategy, pod.DNSPolicy)
			}
		})
	}
}

// TestWebhookValues: a value has the effect that its name says.
func TestWebhookValues(t *testing.T) {
	all := hookIn(t, "kube-system", valuesOf(t, `{image: {tag: v9}, clusterDNS: {ips: [172.20.0.10]}, config: {dns: {zones: [a.example]}, log: {level: debug}},
webhook: {enabled: true, replicas: 3, failurePolicy: Fail, timeoutSeconds: 5, config: {deny: [pod-fqdn-too-long], listen: "[::]:8443"}}}`))
	cfg := readConfig(t, configText(t, all))
	if got := cfg.Webhook; got.ClusterDNS[0] != "172.20.0.10" || got.Listen != "[::]:8443" || got.Deny[0] != "pod-fqdn-too-long" ||
		cfg.DNS.Zones[0] != "a.example" || cfg.Log.Level != "debug" {
		t.Errorf("config.yaml: %+v, zones %v, log %v", got, cfg.DNS.Zones, cfg.Log)
	}
	d := as[appsv1.Deployment](t, all, "Deployment")
	m := as[admissionregistrationv1.MutatingWebhookConfiguration](t, all, "MutatingWebhookConfiguration").Webhooks[0]
	if *d.Spec.Replicas != 3 || onlyContainer(t, d.Spec.Template.Spec).Image != "portolan:v9" || *m.FailurePolicy != "Fail" || *m.TimeoutSeconds != 5 {
		t.Errorf("replicas %d, failurePolicy %s, timeoutSeconds %d", *d.Spec.Replicas, *m.FailurePolicy, *m.TimeoutSeconds)
	}
	given := readConfig(t, configText(t, hook(t, "{config: {clusterDNS: [10.0.0.1]}}")))
	if diff := cmp.Diff([]string{"10.0.0.1"}, given.Webhook.ClusterDNS); diff != "" {
		t.Errorf("clusterDNS (-want +got):\n%s", diff)
	}
	for agent, want := range map[string][]string{
		"{enabled: false}": nil,
		"{enabled: true}":  {"169.254.20.10"},
		"{enabled: true, config: {addresses: [169.254.20.10, 10.96.0.10]}}": {"169.254.20.10"}, // the cluster DNS IP leads to it, too
	} {
		all := hookIn(t, "kube-system", valuesOf(t, "{webhook: {enabled: true}, node: "+agent+"}"))
		if diff := cmp.Diff(want, readConfig(t, configText(t, all)).Webhook.NodeDNS, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("with agents %s: nodeDNS (-want +got):\n%s", agent, diff)
		}
	}
	chosen := hookIn(t, "kube-system", valuesOf(t, "{webhook: {enabled: true, config: {nodeDNS: []}}, node: {enabled: true}}"))
	if dns := readConfig(t, configText(t, chosen)).Webhook.NodeDNS; len(dns) > 0 {
		t.Errorf("nodeDNS = %v where none was chosen", dns)
	}
	before := as[appsv1.Deployment](t, hook(t, "{}"), "Deployment").Spec.Template
	if cmp.Equal(before, as[appsv1.Deployment](t, hook(t, "{config: {timeout: 500ms}}"), "Deployment").Spec.Template) {
		t.Error("another configuration does not replace Pods")
	}
	for _, refused := range []string{
		"webhook: {enable: true}",
		"webhook: {enabled: true, config: {service: a/b}}",
		"webhook: {enabled: true, failurePolicy: Maybe}",
		"webhook: {enabled: true, timeoutSeconds: 31}",
		"webhook: {enabled: true, timeoutSeconds: 2, config: {timeout: 2s}}",
		"webhook: {enabled: true, timeoutSeconds: 2, config: {timeout: 2100ms}}",
		"webhook: {enabled: true, timeoutSeconds: 1}", // timeout is 1s
		"webhook: {enabled: true, config: {timeout: soon}}",
		"{clusterDNS: {enabled: false}, webhook: {enabled: true}}", // whose DNS?
		"{clusterDNS: {ips: []}, webhook: {enabled: true}}",
		"{clusterDNS: {ips: [10.96.0.10, 'fd00::1']}, webhook: {enabled: true}, node: {enabled: true, config: {addresses: [169.254.20.10, 'fd00::a']}}}",
	} {
		if _, err := render(t, valuesOf(t, refused)); err == nil {
			t.Errorf("helm template with %s: no error", refused)
		}
	}
}
