package deploy

import (
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	model "portolan.dev/portolan/internal/cluster"
	kinds "portolan.dev/portolan/internal/kube/object"
)

// networkAgents is what the chart renders for agents with these parts, the network among them, with these values
// below node, and with more.
func networkAgents(t *testing.T, parts []any, node, more string) objects {
	t.Helper()
	values := withAgents(t, node)
	values["node"].(map[string]any)["parts"] = parts
	maps.Copy(values, valuesOf(t, more))
	return without(rendered(t, values), rendered(t, nil))
}

// someParts are the parts of agents that are a network and nothing else but DNS, and allOfThem those of a whole one.
var (
	someParts = []any{"dns", "network"}
	allOfThem = []any{"dns", "proxy", "network", "policy"}
)

// networkVariants are the ways of deploying agents that are the network of Pods, by the names of their parts.
func networkVariants(t *testing.T) map[string]objects {
	t.Helper()
	return map[string]objects{
		"kustomize/node-network": kustomized(t, "node-network"),
		"helm, cache":            networkAgents(t, someParts, "{config: {mode: cache}}", "{}"),
		"helm, secondary":        networkAgents(t, someParts, "{}", "{}"),
	}
}

// wholeVariants are the ways of deploying agents that are the whole network.
func wholeVariants(t *testing.T) map[string]objects {
	t.Helper()
	api := "proxy: {" + apiHost + "}"
	whole := func(more string) objects {
		values := valuesOf(t, "{wholeNetwork: {enabled: true}, "+api+"}")
		maps.Copy(values, valuesOf(t, more))
		return without(rendered(t, values), rendered(t, nil))
	}
	return map[string]objects{
		"kustomize/node-whole":    kustomized(t, "node-whole"),
		"helm, parts, cache":      networkAgents(t, allOfThem, "{config: {mode: cache}}", api),
		"helm, whole, cache":      whole("node: {config: {mode: cache}}"),
		"helm, whole, other node": whole("node: {enabled: false, parts: [dns], config: {mode: cache}}"),
		"helm, whole, secondary":  whole("{}"),
	}
}

// networkRules are the rights with which the network is read.
var networkRules = []rbacv1.PolicyRule{
	{APIGroups: []string{""}, Resources: []string{"services", "nodes"}, Verbs: readOnly},
	{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: readOnly},
	{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"servicecidrs"}, Verbs: readOnly},
}

// TestEncryptionPublishesKeys: with encryption, and only then, agents may write to Nodes.
func TestEncryptionPublishesKeys(t *testing.T) {
	t.Parallel()
	for encryption, want := range map[string]bool{"none": false, "wireguard": true} {
		o := networkAgents(t, someParts, "{config: {mode: cache}}", "network: {config: {encryption: "+encryption+"}}")
		patches := slices.ContainsFunc(as[rbacv1.ClusterRole](t, o, "ClusterRole").Rules, func(r rbacv1.PolicyRule) bool {
			return slices.Equal(r.Resources, []string{"nodes"}) && slices.Equal(r.Verbs, []string{"patch"})
		})
		if patches != want {
			t.Errorf("with encryption %s, agents may patch Nodes: %t, want %t", encryption, patches, want)
		}
	}
}

// TestEncryptionLimitsAgents: agents that may write to Nodes may only write to their own, by the policy that network.md
// has, where the tokens of the cluster name the Node.
func TestEncryptionLimitsAgents(t *testing.T) {
	t.Parallel()
	const policy, binding = "ValidatingAdmissionPolicy/portolan-node-keys", "ValidatingAdmissionPolicyBinding/portolan-node-keys"
	for claim, test := range map[string]struct {
		encryption, version string
		want                bool
	}{
		"none":      {"none", "v1.36.0", false},
		"wireguard": {"wireguard", "v1.36.0", true},
		"the first": {"wireguard", "v1.32.0", true},
		"too early": {"wireguard", "v1.31.9", false},
	} {
		values := withAgents(t, "{config: {mode: cache}}")
		values["node"].(map[string]any)["parts"] = someParts
		maps.Copy(values, valuesOf(t, "network: {config: {encryption: "+test.encryption+"}}"))
		all, _, err := renderChart(t, loaded(t), "kube-system", values, clusterOf(test.version))
		if err != nil {
			t.Fatal(err)
		}
		if all[policy] != nil != test.want || all[binding] != nil != test.want {
			t.Errorf("%s: policy %v, binding %v, want them: %t", claim, all[policy], all[binding], test.want)
		}
		if !test.want {
			continue
		}
		documented := objects{}
		documented.read(t, networkExample(t, "### Encryption"))
		for _, key := range []string{policy, binding} {
			if diff := cmp.Diff(documented[key]["spec"], all[key]["spec"]); diff != "" {
				t.Errorf("%s: %s (-network.md +chart):\n%s", claim, key, diff)
			}
		}
	}
}

// networkExample is the first YAML below a heading of network.md.
func networkExample(t *testing.T, heading string) string {
	t.Helper()
	_, text, _ := strings.Cut(readFile(t, "../../docs/network.md"), "\n"+heading+"\n")
	_, text, _ = strings.Cut(text, "```yaml\n")
	text, _, found := strings.Cut(text, "```\n")
	if !found {
		t.Fatalf("network.md has no YAML below %q", heading)
	}
	return text
}

// networkKinds are the kinds that routes and announcements are made of.
var networkKinds = []model.Kind{
	model.KindNode, model.KindServiceCIDR, model.KindService, model.KindEndpointSlice,
}

// TestNetworkRulesAreOfItsKinds: the rights are those to read the kinds that the network is made of, and the service
// proxy has them, too, which stand for both.
func TestNetworkRulesAreOfItsKinds(t *testing.T) {
	t.Parallel()
	var want, got []string
	for _, k := range kinds.Kinds {
		if slices.Contains(networkKinds, k.Model) {
			want = append(want, k.Resource+"."+k.Group.Group)
		}
	}
	for _, rule := range networkRules {
		for _, resource := range rule.Resources {
			got = append(got, resource+"."+rule.APIGroups[0])
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("resources (-kinds +rights):\n%s", diff)
	}
	proxy := as[rbacv1.ClusterRole](t, proxyOf(t, "{enabled: true, "+apiHost+"}"), "ClusterRole").Rules
	for _, rule := range networkRules {
		if !slices.ContainsFunc(proxy, func(r rbacv1.PolicyRule) bool { return cmp.Equal(r, rule) }) {
			t.Errorf("the proxy's rights %v lack %v", proxy, rule)
		}
	}
}

// TestNetworkPrivileges: agents that are the network of Pods have a privileged container in the node's network, its
// directories and rights to read, and no other namespace of the node.
func TestNetworkPrivileges(t *testing.T) {
	t.Parallel()
	proxy := as[rbacv1.ClusterRole](t, proxyOf(t, "{enabled: true, "+apiHost+"}"), "ClusterRole").Rules
	for name, all := range networkVariants(t) {
		wantNetwork(t, name, all, networkRules, []string{"NODE_NAME"})
	}
	for name, all := range wholeVariants(t) {
		environment := []string{"NODE_NAME", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"}
		wantNetwork(t, name, all, slices.Concat(proxy, policyRules), environment)
	}
}

func wantNetwork(t *testing.T, name string, all objects, rules []rbacv1.PolicyRule, environment []string) {
	t.Helper()
	d := as[appsv1.DaemonSet](t, all, "DaemonSet")
	pod := d.Spec.Template.Spec
	c := onlyContainer(t, pod)
	paths := []string{"/dev/net", "/etc/cni/net.d", "/opt/cni/bin", "/run/portolan"}
	if isSecondary(name) {
		paths = append(paths, "/var/lib/portolan-node")
	}
	paths = append(paths, "/var/run/netns")
	yes, root := true, int64(0)
	for what, diff := range map[string]string{
		"rules":             cmp.Diff(rules, as[rbacv1.ClusterRole](t, all, "ClusterRole").Rules),
		"the token":         cmp.Diff(&yes, pod.AutomountServiceAccountToken),
		"environment":       cmp.Diff(environment, namesOfEnv(c)),
		"files of the node": cmp.Diff(paths, hostPaths(pod)),
		"the container's securityContext": cmp.Diff(
			&corev1.SecurityContext{RunAsUser: &root, Privileged: &yes, ReadOnlyRootFilesystem: &yes}, c.SecurityContext,
		),
		// A node is not ready before it has a network, and gets its first Pods from no other.
		"tolerations": cmp.Diff([]corev1.Toleration{{Operator: corev1.TolerationOpExists}}, pod.Tolerations),
	} {
		if diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, what, diff)
		}
	}
	if !pod.HostNetwork || pod.HostPID || pod.HostIPC || c.Resources.Limits.Memory().String() != "512Mi" {
		t.Errorf("%s: hostNetwork %v, hostPID %v, hostIPC %v, resources %v", name, pod.HostNetwork, pod.HostPID, pod.HostIPC, c.Resources)
	}
}

// TestNetworkFits: the configuration is valid and says where the volumes are, with the same paths in the container and
// on the node; mounts that the runtime makes later reach the agent; one plugin is installed, and the probes' socket is
// the Pod's own.
func TestNetworkFits(t *testing.T) {
	t.Parallel()
	const moved = "network: {cni: {binDir: /usr/libexec/cni, confDir: /etc/cni.d}, namespaces: /run/pods, " +
		"config: {mtu: 1400, cni: {socket: /run/dns/network.sock}}}"
	all := networkVariants(t)
	all["helm, other paths"] = networkAgents(t, someParts, "{config: {mode: cache}}", moved)
	all["helm, other paths, all parts"] = networkAgents(t, allOfThem, "{config: {mode: cache}}", "{"+
		"policy: {config: {cni: {socket: /run/none/policy.sock}}}, proxy: {"+apiHost+"}, "+moved+"}")
	maps.Copy(all, wholeVariants(t))
	for name, all := range all {
		cfg := readConfig(t, configText(t, objects{"": all["ConfigMap/"+agentName]}))
		cfg.Node.Servers = []string{"10.96.0.11"}
		if err := cfg.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		other := strings.Contains(name, "other paths")
		if cni := cfg.Network.CNI; !cni.Install || cfg.Policy.CNI.Install || (cfg.Network.MTU == 1400) != other {
			t.Errorf("%s: config.yaml: network %+v, policy %+v", name, cfg.Network, cfg.Policy)
		}
		d := as[appsv1.DaemonSet](t, all, "DaemonSet")
		pod := d.Spec.Template.Spec
		namespaces := map[bool]string{false: "/var/run/netns", true: "/run/pods"}[other]
		for _, dir := range []string{path.Dir(cfg.Network.CNI.Socket), cfg.Network.CNI.BinDir, cfg.Network.CNI.ConfDir, namespaces} {
			if v := volumeAt(t, pod, dir); v.HostPath == nil || v.HostPath.Path != dir || *v.HostPath.Type != corev1.HostPathDirectoryOrCreate {
				t.Errorf("%s: volume at %s: %v, want that of the node", name, dir, v)
			}
		}
		c := onlyContainer(t, pod)
		for _, m := range c.VolumeMounts {
			later := m.MountPropagation != nil && *m.MountPropagation == corev1.MountPropagationHostToContainer
			if later != (m.MountPath == namespaces) {
				t.Errorf("%s: mounts below %s reach the agent: %t", name, m.MountPath, later)
			}
		}
		probes, _ := strings.CutPrefix(cfg.Admin.Probes[0], "unix:")
		if v := volumeAt(t, pod, path.Dir(probes)); v.EmptyDir == nil || c.LivenessProbe.Exec.Command[3] != cfg.Admin.Probes[0] {
			t.Errorf("%s: the probes' socket %s is in %v, want one of the Pod's own; probe %v", name, probes, v, c.LivenessProbe)
		}
	}
}

// TestNetworkChartIsKustomization: both ways give the same objects, but for the way in which the API server's address
// is given; and the switch gives what its parts do.
func TestNetworkChartIsKustomization(t *testing.T) {
	t.Parallel()
	some, whole := networkVariants(t), wholeVariants(t)
	withoutAddress(whole)
	want := comparableOf(t, whole["kustomize/node-whole"])
	for claim, diff := range map[string]string{
		"node-network":   cmp.Diff(comparableOf(t, some["kustomize/node-network"]), comparableOf(t, some["helm, cache"])),
		"node-whole":     cmp.Diff(want, comparableOf(t, whole["helm, parts, cache"])),
		"wholeNetwork":   cmp.Diff(want, comparableOf(t, whole["helm, whole, cache"])),
		"values of node": cmp.Diff(want, comparableOf(t, whole["helm, whole, other node"])),
	} {
		if diff != "" {
			t.Errorf("%s: objects (-kustomize +helm):\n%s", claim, diff)
		}
	}
}

// TestWholeNetworkControllers: the switch installs the controllers that have something to give, and no others.
func TestWholeNetworkControllers(t *testing.T) {
	t.Parallel()
	const nodes, addresses = "Deployment/portolan-nodes", "Deployment/portolan-loadbalancer"
	for more, want := range map[string][]string{
		"{}": nil,
		"controller: {nodes: {config: {nodes: {clusterCIDRs: [10.244.0.0/16]}}}}":                            {nodes},
		"controller: {loadBalancer: {config: {loadBalancer: {pools: [{name: a, ranges: [192.0.2.0/28]}]}}}}": {addresses},
		"controller: {nodes: {config: {nodes: {clusterCIDRs: [10.244.0.0/16]}}}, " +
			"loadBalancer: {config: {loadBalancer: {pools: [{name: a, ranges: [192.0.2.0/28]}]}}}}": {addresses, nodes},
	} {
		values := valuesOf(t, "{wholeNetwork: {enabled: true}, proxy: {"+apiHost+"}}")
		maps.Copy(values, valuesOf(t, more))
		all := rendered(t, values)
		var got []string
		for _, key := range []string{addresses, nodes} {
			if all[key] != nil {
				got = append(got, key)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("with %s (-want +got):\n%s", more, diff)
		}
		delete(values, "wholeNetwork")
		for key := range rendered(t, values) {
			if slices.Contains(want, key) {
				t.Errorf("without the switch %s is rendered", key)
			}
		}
	}
}

// TestWholeNetworkAnnounces: the agents announce the addresses of the Services that the controller serves.
func TestWholeNetworkAnnounces(t *testing.T) {
	t.Parallel()
	const balancers = "controller: {loadBalancer: {config: {loadBalancer: {class: example.com/lb, withoutClass: true, pools: [{name: a, ranges: [192.0.2.0/28]}]}}}}"
	for more, want := range map[string]bool{
		"{}":                  false,
		"{" + balancers + "}": true,
		"{" + balancers + ", network: {config: {announce: {enabled: false}}}}": false,
		"network: {config: {announce: {enabled: true}}}":                       true,
	} {
		values := valuesOf(t, "{wholeNetwork: {enabled: true}, proxy: {"+apiHost+"}}")
		maps.Copy(values, valuesOf(t, more))
		cfg := readConfig(t, configText(t, objects{"": rendered(t, values)["ConfigMap/"+agentName]}))
		cfg.Node.Servers = []string{"10.96.0.11"}
		if err := cfg.Validate(); err != nil {
			t.Errorf("with %s: %v", more, err)
		}
		served := want && strings.Contains(more, balancers)
		if b := cfg.Controller.LoadBalancer; cfg.Network.Announce.Enabled != want || b.WithoutClass != served || (b.Class == "example.com/lb") != served {
			t.Errorf("with %s: announce %+v, Services of %+v", more, cfg.Network.Announce, b)
		}
	}
}

// TestRestartAnnouncers: agents that announce are replaced when they are to announce the addresses of other Services,
// and only then.
func TestRestartAnnouncers(t *testing.T) {
	t.Parallel()
	annotations := func(announce, balancers string) map[string]string {
		all := rendered(t, valuesOf(t, "{wholeNetwork: {enabled: true}, proxy: {"+apiHost+"}, network: {config: {announce: {enabled: "+
			announce+"}}}, controller: {loadBalancer: {config: {loadBalancer: "+balancers+"}}}}"))
		return as[appsv1.DaemonSet](t, objects{"": all["DaemonSet/"+agentName]}, "DaemonSet").Spec.Template.Annotations
	}
	const pool = "pools: [{name: a, ranges: [192.0.2.0/28]}]"
	for balancers, replaces := range map[string]bool{
		"{class: example.com/lb, " + pool + "}":           true,
		"{withoutClass: true, " + pool + "}":              true,
		"{pools: [{name: b, ranges: [198.51.100.0/28]}]}": false,
	} {
		for announce, want := range map[string]bool{"true": replaces, "false": false} {
			before, after := annotations(announce, "{"+pool+"}"), annotations(announce, balancers)
			if changed := !maps.Equal(before, after); changed != want {
				t.Errorf("announce %s, %s: agents are replaced: %t, want %t", announce, balancers, changed, want)
			}
		}
	}
}

// TestNetworkOfOthers: values of the network change nothing for those who have not asked for it, and an upgrade with
// the values of a chart that had none gives what one with this chart's does.
func TestNetworkOfOthers(t *testing.T) {
	t.Parallel()
	of := optional{name: "none", section: "network", enabled: "network: {cni: {install: false}, config: {mtu: 1400}, memoryLimit: 1Gi}"}
	of.test(t, "node: {enabled: true, existingSecret: mine, parts: [dns, network]}")
	whole := optional{name: agentName, section: "wholeNetwork", enabled: "wholeNetwork: {enabled: false}"}
	whole.test(t, "{wholeNetwork: {enabled: true}, node: {existingSecret: mine}, proxy: {"+apiHost+"}}")
}

// TestNetworkValues: a value has the effect that its name says, and what cannot be is refused.
func TestNetworkValues(t *testing.T) {
	t.Parallel()
	all := networkAgents(t, someParts, "{config: {mode: cache}}", "network: {cni: {install: false}, memoryLimit: 1Gi}")
	pod := as[appsv1.DaemonSet](t, all, "DaemonSet").Spec.Template.Spec
	if diff := cmp.Diff([]string{"/dev/net", "/run/portolan", "/var/run/netns"}, hostPaths(pod)); diff != "" {
		t.Errorf("files of the node with a plugin that others install (-want +got):\n%s", diff)
	}
	if cfg := readConfig(t, configText(t, all)); cfg.Network.CNI.Install {
		t.Error("config.yaml: the agent installs the plugin")
	}
	if c := onlyContainer(t, pod); c.Resources.Limits.Memory().String() != "1Gi" {
		t.Errorf("resources %v", c.Resources)
	}
	template := func(more string) corev1.PodTemplateSpec {
		return as[appsv1.DaemonSet](t, networkAgents(t, someParts, "{}", more), "DaemonSet").Spec.Template
	}
	if cmp.Equal(template("{}"), template("network: {config: {mtu: 1400}}")) {
		t.Error("another setting of the network does not replace Pods")
	}
	const announces = "network: {config: {announce: {enabled: true}}}"
	if cmp.Equal(template(announces), template("{"+announces+", controller: {loadBalancer: {config: {loadBalancer: {withoutClass: true}}}}}")) {
		t.Error("Services of another class do not replace Pods that announce their addresses")
	}
	const parts = "node: {enabled: true, parts: [dns, network]}"
	for claim, c := range map[string]struct{ values, says string }{
		"no address of the API server": {"wholeNetwork: {enabled: true}", "proxy.api.host is empty"},
		"two proxies on a node":        {"{wholeNetwork: {enabled: true}, proxy: {enabled: true, " + apiHost + "}}", "a node has one service proxy"},
		"an unknown value":             {"network: {enabled: true}", "enabled"},
		"an unknown switch":            {"wholeNetwork: {parts: [dns]}", "parts"},
		"a relative directory":         {"network: {cni: {binDir: bin}}", "binDir"},
		"relative namespaces":          {"network: {namespaces: netns}", "namespaces"},
		"the plugin in the file":       {"{" + parts + ", network: {config: {cni: {install: true}}}}", "config"},
		"no socket":                    {"{" + parts + ", network: {config: {cni: {socket: ''}}}}", "socket"},
	} {
		if _, err := render(t, valuesOf(t, c.values)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want an error with %q", claim, err, c.says)
		}
	}
}

// TestNetworkGuide: the values in network.md make everything that the guide speaks of, with valid settings.
func TestNetworkGuide(t *testing.T) {
	t.Parallel()
	example := networkExample(t, "## A cluster on bare metal")
	all := rendered(t, valuesOf(t, example))
	for _, key := range []string{
		"Service/kube-dns", "Deployment/portolan", "DaemonSet/portolan-node", "Deployment/portolan-loadbalancer",
	} {
		if all[key] == nil {
			t.Errorf("%s is missing", key)
		}
	}
	if all["Deployment/portolan-nodes"] != nil {
		t.Error("two controllers would give Nodes ranges")
	}
	for _, name := range []string{"ConfigMap/portolan", "ConfigMap/portolan-node", "ConfigMap/portolan-loadbalancer"} {
		cfg := readConfig(t, configText(t, objects{"": all[name]}))
		if name == "ConfigMap/portolan-node" {
			cfg.Node.Servers = []string{"10.96.0.11"}
			if !cfg.Network.Announce.Enabled {
				t.Error("nobody announces the addresses of the pool")
			}
		}
		if err := cfg.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNetworkNotes: what helm says at the end names what becomes of nodes, and what an uninstallation leaves.
func TestNetworkNotes(t *testing.T) {
	t.Parallel()
	values := valuesOf(t, "{wholeNetwork: {enabled: true}, proxy: {"+apiHost+"}}")
	_, notes, err := renderChart(t, loaded(t), "kube-system", values, clusterOf("v1.36.0"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"portolan cleanup", "becomes Ready", "none starts"} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes lack %q:\n%s", want, notes)
		}
	}
	if strings.Contains(notes, "removes the CNI") {
		t.Errorf("the notes say that the plugin is removed:\n%s", notes)
	}
}
