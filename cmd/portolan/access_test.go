package main

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	policyv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"portolan.dev/portolan/internal/kube/apitest"
)

// shopAPI returns an API server with a Service and a Pod in two namespaces.
func shopAPI(t *testing.T) *apitest.Server {
	t.Helper()
	api := apitest.New(t)
	for _, ns := range []string{"shop", "data"} {
		in := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }
		api.Put(
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}},
			&corev1.Service{ObjectMeta: in("web"), Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.7", ClusterIPs: []string{"10.96.0.7"}}},
			&corev1.Pod{ObjectMeta: in("client")},
		)
	}
	return api
}

// command runs portolan with an environment, and returns what it prints and its status.
func command(t *testing.T, env []string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	cmd := exec.Command("portolan", args...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Env = append(os.Environ(), append([]string{"HOME=/nowhere", "KUBECONFIG="}, env...)...)
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatalf("%q: %v", args, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// TestKubeconfigOfKubectl checks that commands which read a cluster find it as kubectl does.
func TestKubeconfigOfKubectl(t *testing.T) {
	t.Parallel()
	file := shopAPI(t).Kubeconfig(t)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	if err := os.Mkdir(filepath.Join(home, ".kube"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(home, ".kube", "config"), string(text))
	empty := filepath.Join(home, "empty")
	write(t, empty, "")
	for claim, test := range map[string]struct {
		env    []string
		args   []string
		status int
		stderr string
	}{
		"KUBECONFIG":                           {[]string{"KUBECONFIG=" + file}, nil, 0, ""},
		"a list of files, one of them missing": {[]string{"KUBECONFIG=/nowhere/config:" + file}, nil, 0, ""},
		"~/.kube/config":                       {[]string{"HOME=" + home}, nil, 0, ""},
		"KUBECONFIG before ~/.kube/config":     {[]string{"HOME=" + home, "KUBECONFIG=/nowhere/config"}, nil, 2, "/nowhere/config"},
		"--kubeconfig before KUBECONFIG":       {[]string{"KUBECONFIG=/nowhere/config"}, []string{"--kubeconfig", file}, 0, ""},
		"no such context":                      {[]string{"KUBECONFIG=" + file}, []string{"--context", "other"}, 2, `no context "other"; there are `},
		"no context at all":                    {nil, []string{"--kubeconfig", empty, "--context", "other"}, 2, `no context "other"; there are none`},
		"nothing":                              {nil, nil, 2, "no cluster to read: not running in a Pod; set KUBECONFIG, or give"},
		"a context of no kubeconfig":           {nil, []string{"--context", "prod"}, 2, `context "prod": there is no kubeconfig; give --kubeconfig FILE`},
		"a context of no kubeconfig in a Pod":  {[]string{"KUBERNETES_SERVICE_HOST=192.0.2.1", "KUBERNETES_SERVICE_PORT=443"}, []string{"--context", "prod"}, 2, `context "prod": there is no kubeconfig`},
		"a context beside manifests":           {[]string{"KUBECONFIG=" + file}, []string{"--context", "test", "--manifests", "x"}, 2, "--manifests and --context exclude each other"},
		"seconds":                              {nil, []string{"--kubeconfig", file, "--request-timeout", "20"}, 0, ""},
		"no timeout":                           {nil, []string{"--kubeconfig", file, "--request-timeout", "0"}, 0, ""},
		"a negative timeout":                   {nil, []string{"--kubeconfig", file, "--request-timeout", "-1s"}, 2, "-1s is negative"},
		"no duration":                          {nil, []string{"--kubeconfig", file, "--request-timeout", "soon"}, 2, `"soon" is not a number of seconds, or a duration such as 5s`},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			stdout, stderr, status := command(t, test.env, append([]string{"query", "web.shop.svc.cluster.local"}, test.args...)...)
			if status != test.status || !strings.Contains(stderr, test.stderr) || status == 0 && !strings.Contains(stdout, "10.96.0.7") {
				t.Errorf("status %d, stdout %s, stderr %s; want %d and %q", status, stdout, stderr, test.status, test.stderr)
			}
		})
	}
}

// TestContextBesideFile checks that a context names the cluster of a Pod in a file.
func TestContextBesideFile(t *testing.T) {
	t.Parallel()
	file := shopAPI(t).Kubeconfig(t)
	pod := filepath.Join(t.TempDir(), "pod.yaml")
	write(t, pod, "{apiVersion: v1, kind: Pod, metadata: {name: new, namespace: shop}, spec: {containers: []}}")
	args := []string{"env", "-f", pod, "--context", "test"}
	stdout, stderr, status := command(t, []string{"KUBECONFIG=" + file}, args...)
	if status != 0 || !strings.Contains(stdout, "WEB_SERVICE_HOST=10.96.0.7") {
		t.Errorf("%q: status %d, stdout %s, stderr %s; want the Service of the cluster", args, status, stdout, stderr)
	}
}

// TestRefusedPortFailsSoon checks that a command does not wait for an API server that
// accepts no connection, nor longer than --request-timeout for one that does not answer.
func TestRefusedPortFailsSoon(t *testing.T) {
	t.Parallel()
	for claim, test := range map[string]struct {
		args  []string
		fault func(*apitest.Server)
		want  string
	}{
		"a refused port":    {nil, (*apitest.Server).Stop, "connection refused"},
		"--request-timeout": {[]string{"--request-timeout", "1s"}, func(s *apitest.Server) { s.Misbehave(apitest.Fault{Slow: time.Hour}) }, "within 1s"},
		"an integer":        {[]string{"--request-timeout", "1"}, func(s *apitest.Server) { s.Misbehave(apitest.Fault{Slow: time.Hour}) }, "within 1s"},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			api := shopAPI(t)
			file := api.Kubeconfig(t)
			test.fault(api)
			begun := time.Now()
			_, stderr, status := command(t, nil, append([]string{"query", "web.shop.svc.cluster.local", "--kubeconfig", file}, test.args...)...)
			const soon = 3 * time.Second
			if took := time.Since(begun); status != 2 || !strings.Contains(stderr, test.want) || took > soon {
				t.Errorf("status %d after %s, stderr %s; want 2 within %s, and %q", status, took, stderr, soon, test.want)
			}
		})
	}
}

// TestRightsInOneNamespace checks that rights in one namespace are enough for what is in
// it, with a note, and that other namespaces are unknown and not empty.
func TestRightsInOneNamespace(t *testing.T) {
	t.Parallel()
	api := shopAPI(t)
	api.Misbehave(apitest.Fault{Refuse: func(_, path string) int {
		if strings.Contains(path, "/namespaces/shop/") {
			return 0
		}
		return http.StatusForbidden
	}})
	file := api.Kubeconfig(t)
	const note = "portolan: note: the account may not list "
	for claim, test := range map[string]struct {
		args           []string
		status         int
		stdout, stderr string
	}{
		"explain":          {[]string{"explain", "web", "--from", "shop/client", "--cluster-dns", "10.96.0.10"}, 0, "10.96.0.7", note},
		"the flag":         {[]string{"explain", "web", "--from", "client", "-n", "shop", "--cluster-dns", "10.96.0.10"}, 0, "10.96.0.7", note},
		"other namespaces": {[]string{"explain", "web.data", "--from", "shop/client", "--cluster-dns", "10.96.0.10"}, 1, "this command may not read the Services of namespace data", note},
		"query":            {[]string{"query", "web.shop.svc.cluster.local", "-n", "shop"}, 0, "10.96.0.7", note},
		"no rights":        {[]string{"query", "web.shop.svc.cluster.local", "-n", "data"}, 2, "", "allow it with the rule"},
		"env":              {[]string{"env", "shop/client"}, 0, "WEB_SERVICE_HOST=10.96.0.7", note},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			stdout, stderr, status := command(t, nil, append(test.args, "--kubeconfig", file)...)
			if status != test.status || !strings.Contains(stdout, test.stdout) || !strings.Contains(stderr, test.stderr) {
				t.Errorf("%q: status %d, stdout %s, stderr %s; want %d, %q and %q", test.args, status, stdout, stderr, test.status, test.stdout, test.stderr)
			}
		})
	}
}

// TestCompletions checks that Pods, namespaces, names and contexts are completed from the
// cluster.
func TestCompletions(t *testing.T) {
	t.Parallel()
	file := shopAPI(t).Kubeconfig(t)
	for claim, test := range map[string]struct {
		args []string
		want string
	}{
		"Pods":                     {[]string{"resolvconf", ""}, "data/client\nshop/client\n"},
		"Pods of --from":           {[]string{"explain", "web", "--from", ""}, "data/client\nshop/client\n"},
		"Pods of a namespace":      {[]string{"env", "-n", "shop", ""}, "shop/client\n"},
		"names for a Pod":          {[]string{"explain", "--from", "shop/client", ""}, "web\nweb.data\n"},
		"fully qualified names":    {[]string{"query", ""}, "web.data.svc.cluster.local\nweb.shop.svc.cluster.local\n"},
		"namespaces":               {[]string{"explain", "-n", ""}, "data\ndefault\nshop\n"},
		"contexts of a kubeconfig": {[]string{"explain", "--context", ""}, "test\n"},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			stdout, stderr, status := command(t, []string{"KUBECONFIG=" + file}, append([]string{"__complete"}, test.args...)...)
			if status != 0 || !strings.HasPrefix(stdout, test.want+":") {
				t.Errorf("%q: status %d, stdout %q, stderr %s; want %q", test.args, status, stdout, stderr, test.want)
			}
		})
	}
}

// TestPoliciesOfCluster checks that explain --to and policy diff read the policies of a cluster, that one
// without ClusterNetworkPolicies has none, and that nothing is allowed by policies that cannot be read.
func TestPoliciesOfCluster(t *testing.T) {
	t.Parallel()
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, policy, `{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: deny, namespace: data}, spec: {podSelector: {}}}`)
	explain := []string{"explain", "shop/client", "--to", "data/client:80"}
	change := []string{"policy", "diff", policy}
	for claim, test := range map[string]struct {
		prepare func(*apitest.Server)
		args    []string
		status  int
		output  string
	}{
		"no policy":  {func(*apitest.Server) {}, explain, 0, "no policy restricts it"},
		"a change":   {func(*apitest.Server) {}, change, 1, "NetworkPolicy data/deny, no rule of spec.ingress"},
		"two tiers":  {func(s *apitest.Server) { s.Put(denyShop()) }, explain, 1, "ClusterNetworkPolicy deny (tier Admin, priority 5) denies it"},
		"no change":  {func(s *apitest.Server) { s.Put(denyShop(), denyData()) }, change, 0, ""},
		"no CRD":     {func(s *apitest.Server) { s.Uninstall("clusternetworkpolicies") }, explain, 0, "no policy restricts it"},
		"no rights":  {refuse("networkpolicies"), explain, 2, "the NetworkPolicies of the cluster could not be read"},
		"none again": {refuse("networkpolicies"), change, 2, "the NetworkPolicies of the cluster could not be read"},
		"no tiers":   {refuse("clusternetworkpolicies"), explain, 1, "these could not be read: clusternetworkpolicies"},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			api := shopAPI(t)
			test.prepare(api)
			stdout, stderr, status := command(t, nil, append(test.args, "--kubeconfig", api.Kubeconfig(t))...)
			if status != test.status || !strings.Contains(stdout+stderr, test.output) || test.output == "" && stdout+stderr != "" {
				t.Errorf("%q: status %d, stdout %s, stderr %s; want %d and %q", test.args, status, stdout, stderr, test.status, test.output)
			}
		})
	}
}

// TestExplainWithRightsOfAgent checks what explain says with the rights of an agent that enforces policies: what is
// not known and which right is missing, and nothing of kinds that do not matter.
func TestExplainWithRightsOfAgent(t *testing.T) {
	t.Parallel()
	api := shopAPI(t)
	api.Misbehave(apitest.Fault{Refuse: func(_, path string) int {
		switch path[strings.LastIndex(path, "/")+1:] {
		case "pods", "namespaces", "nodes", "services", "networkpolicies", "clusternetworkpolicies":
			return 0
		}
		return http.StatusForbidden
	}})
	api.Put(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "data", Name: "db"}, Spec: corev1.PodSpec{NodeName: "n1"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.244.1.3", PodIPs: []corev1.PodIP{{IP: "10.244.1.3"}}},
	}, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "data", Name: "db"},
		Spec: corev1.ServiceSpec{
			ClusterIP: "10.96.0.8", ClusterIPs: []string{"10.96.0.8"}, Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}},
		},
	})
	file := api.Kubeconfig(t)
	for to, test := range map[string]struct {
		status         int
		stdout, stderr string
	}{
		"data/db:80": {0, "allowed: pod shop/client to data/db:80/tcp\n", ""},
		"10.96.0.8:80": {
			1, "not known: pod shop/client to 10.96.0.8:80/tcp\n\n" +
				"cure: allow the account to list endpointslices.discovery.k8s.io, or name a Pod instead " +
				"(the endpoints of Service data/db are not known: its EndpointSlices could not be read)\n", "",
		},
		"data/deployment/db:80": {2, "", "--to: no data/deployment/db is known: the Deployments of the cluster could not be read\n"},
	} {
		stdout, stderr, status := command(t, nil, "explain", "shop/client", "--to", to, "--cluster-dns", "10.96.0.10", "--kubeconfig", file)
		if status != test.status || !strings.Contains(stdout, test.stdout) || !strings.Contains(stderr, test.stderr) || test.stderr == "" && stderr != "" {
			t.Errorf("--to %s: status %d, stdout %s, stderr %s; want %d, %q and %q", to, status, stdout, stderr, test.status, test.stdout, test.stderr)
		}
	}
}

// refuse has an API server refuse a resource.
func refuse(resource string) func(*apitest.Server) {
	return func(s *apitest.Server) {
		s.Misbehave(apitest.Fault{Refuse: func(_, path string) int {
			if strings.HasSuffix(path, "/"+resource) {
				return http.StatusForbidden
			}
			return 0
		}})
	}
}

// denyShop returns a ClusterNetworkPolicy that keeps Pods of namespace shop from all others.
func denyShop() *policyv1alpha2.ClusterNetworkPolicy {
	return &policyv1alpha2.ClusterNetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "deny"},
		Spec: policyv1alpha2.ClusterNetworkPolicySpec{
			Tier: policyv1alpha2.AdminTier, Priority: 5,
			Subject: policyv1alpha2.ClusterNetworkPolicySubject{
				Namespaces: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": "shop"}},
			},
			Egress: []policyv1alpha2.ClusterNetworkPolicyEgressRule{{
				Action: policyv1alpha2.ClusterNetworkPolicyRuleActionDeny,
				To:     []policyv1alpha2.ClusterNetworkPolicyEgressPeer{{Namespaces: new(metav1.LabelSelector)}},
			}},
		},
	}
}

// denyData returns a NetworkPolicy that isolates the Pods of namespace data.
func denyData() *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "data", Name: "deny"}}
}
