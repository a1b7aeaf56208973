package simulate_test

import (
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/manifest"
	"portolan.dev/portolan/internal/kube/simulate"
	"portolan.dev/portolan/internal/kube/simulate/alloc"
)

// world is a directory of manifests and the model loaded from it.
type world struct {
	t      *testing.T
	dir    string
	store  *cluster.Store
	source *manifest.Source
}

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// settings returns a single-stack configuration with edits applied.
func settings(edit ...func(*simulate.Config)) simulate.Config {
	cfg := simulate.Config{
		ServiceRanges: prefixes("10.96.0.0/16"), PodRanges: prefixes("10.244.0.0/16"),
		NodePorts: alloc.Ports{First: 30000, Last: 32767}, MaxEndpoints: 100, Log: slog.New(slog.DiscardHandler),
	}
	for _, e := range edit {
		e(&cfg)
	}
	return cfg
}

// newWorld returns a world with an empty directory. If recalled is not nil, it is the
// initial model, as from a snapshot.
func newWorld(t *testing.T, cfg simulate.Config, recalled *cluster.Store) *world {
	t.Helper()
	plane, err := simulate.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, dir: t.TempDir(), store: cluster.NewStore()}
	if recalled != nil {
		w.store = recalled
		recalled.View(plane.Recall)
	}
	w.source = manifest.New(manifest.Config{Path: w.dir, Store: w.store, Log: cfg.Log, ControlPlane: plane})
	return w
}

// load replaces the files of the directory, loads it and returns the problems.
func (w *world) load(files map[string]string) (problems []string) {
	w.t.Helper()
	old, _ := filepath.Glob(filepath.Join(w.dir, "*"))
	for _, path := range old {
		_ = os.Remove(path)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
	report, err := w.source.Load()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, p := range report.Problems {
		problems = append(problems, strings.TrimPrefix(p.Error(), w.dir+"/"))
	}
	return problems
}

// pods returns the Pods by key.
func (w *world) pods() map[string]*cluster.Pod {
	pods := make(map[string]*cluster.Pod)
	w.store.View(func(v *cluster.View) {
		for p := range v.Pods() {
			pods[p.String()] = p
		}
	})
	return pods
}

func addresses(pods map[string]*cluster.Pod) map[string]string {
	all := make(map[string]string)
	for key, p := range pods {
		all[key] = fmt.Sprint(p.IPs)
	}
	return all
}

func workload(kind, name, spec string) string {
	version := "apps/v1"
	if strings.HasSuffix(kind, "Job") {
		version = "batch/v1"
	}
	return fmt.Sprintf(`apiVersion: %s
kind: %s
metadata: {name: %s}
spec:
  %s
  selector: {matchLabels: {app: %s}}
  template:
    metadata: {labels: {app: %s}}
    spec: {containers: [{name: a, image: b}]}
---
`, version, kind, name, strings.ReplaceAll(spec, "\n", "\n  "), name, name)
}

func node(name string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata: {name: %s}\n---\n", name)
}

func pod(name, app, rest string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, labels: {app: %s}}\n%s---\n", name, app, rest)
}

// TestWorkloadPods checks the names, labels and hostnames of the Pods of each kind of
// workload, and that they are ready and marked as simulated.
func TestWorkloadPods(t *testing.T) {
	const random = "[bcdfghjklmnpqrstvwxz2456789]{5}"
	const hash = "[bcdfghjklmnpqrstvwxz2456789]{10}"
	for claim, test := range map[string]struct {
		text string
		want []string // patterns of: name node hostname.subdomain labels
	}{
		"a Deployment's have the hash of its template": {
			workload("Deployment", "web", "replicas: 2"),
			[]string{"web-" + hash + "-" + random + ` simulated \. app=web,pod-template-hash=` + hash, "web-" + hash + "-" + random + ` simulated \. app=web,pod-template-hash=` + hash},
		},
		"replicas defaults to one": {workload("Deployment", "web", "paused: false"), []string{"web-.*"}},
		"no replicas":              {workload("Deployment", "web", "replicas: 0"), nil},
		"a StatefulSet's have ordinals, and hostnames under its Service": {
			workload("StatefulSet", "db", "serviceName: pg\nreplicas: 2\nordinals: {start: 5}"),
			[]string{
				`db-5 simulated db-5\.pg app=db,apps.kubernetes.io/pod-index=5,statefulset.kubernetes.io/pod-name=db-5`,
				`db-6 simulated db-6\.pg app=db,apps.kubernetes.io/pod-index=6,statefulset.kubernetes.io/pod-name=db-6`,
			},
		},
		"a DaemonSet has one on each Node": {
			workload("DaemonSet", "agent", "") + node("b") + node("a"),
			[]string{"agent-" + random + ` a \. app=agent`, "agent-" + random + ` b \. app=agent`},
		},
		"without Nodes, there is a simulated one": {workload("DaemonSet", "agent", ""), []string{"agent-" + random + ` simulated \. app=agent`}},
		"a Job has as many Pods as run in parallel": {
			workload("Job", "load", "parallelism: 5\ncompletions: 2"),
			[]string{"load-" + random + " .* app=load,batch.kubernetes.io/job-name=load,job-name=load", "load-" + random + " .*"},
		},
		"an Indexed Job's have completion indexes": {
			workload("Job", "load", "parallelism: 2\ncompletions: 2\ncompletionMode: Indexed"),
			[]string{"load-0-" + random + ` simulated load-0\. .*job-completion-index=0.*`, "load-1-" + random + ` simulated load-1\. .*job-completion-index=1.*`},
		},
		"a suspended Job has none": {workload("Job", "load", "suspend: true"), nil},
		"a CronJob has no Pods": {
			"apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: nightly}\nspec: {schedule: '@daily', jobTemplate: {spec: {template: {spec: {containers: [{name: a, image: b}]}}}}}\n", nil,
		},
		"selected declared Pods count as replicas": {
			workload("Deployment", "web", "replicas: 2") + pod("web-x", "web", ""),
			[]string{"web-" + hash + ".*", `web-x simulated \. app=web`},
		},
		"terminated Pods do not count as replicas": {
			workload("Deployment", "web", "replicas: 1") + pod("web-x", "web", "status: {phase: Succeeded, podIP: 10.244.0.9}\n"),
			[]string{"web-" + hash + ".*", `web-x  \. app=web`},
		},
		"a declared Pod replaces a StatefulSet's": {
			workload("StatefulSet", "db", "serviceName: pg\nreplicas: 2") + pod("db-0", "db", "spec: {hostname: mine}\n"),
			[]string{`db-0 simulated mine\. app=db`, `db-1 simulated db-1\.pg .*`},
		},
		"a long name is truncated as by Kubernetes": {
			workload("Job", strings.Repeat("x", 60), ""), []string{strings.Repeat("x", 58) + random + ".*"},
		},
	} {
		w := newWorld(t, settings(), nil)
		if problems := w.load(map[string]string{"all.yaml": test.text}); len(problems) > 0 {
			t.Errorf("%s: problems %q", claim, problems)
		}
		got := []string{}
		for _, p := range w.pods() {
			got = append(got, fmt.Sprintf("%s %s %s.%s %s", p.Name, p.Node, p.Spec.Hostname, p.Spec.Subdomain, labels(p.Labels)))
			if !p.Finished && (!p.Ready || !p.Simulated || len(p.IPs) != 1) {
				t.Errorf("%s: Pod %+v, want one that is ready, simulated and has an address", claim, p)
			}
			if declared := strings.Contains(test.text, "{name: "+p.Name+","); declared != (p.Owner == nil) {
				t.Errorf("%s: Pod %s has the owner %v; declared %t", claim, p.Name, p.Owner, declared)
			}
		}
		slices.SortFunc(got, strings.Compare)
		if !matches(got, test.want) {
			t.Errorf("%s: Pods\n%s\nwant\n%s", claim, strings.Join(got, "\n"), strings.Join(test.want, "\n"))
		}
	}
}

func labels(all map[string]string) string {
	var texts []string
	for _, k := range slices.Sorted(maps.Keys(all)) {
		texts = append(texts, k+"="+all[k])
	}
	return strings.Join(texts, ",")
}

// matches reports whether each line matches its pattern. Two lines may be in either
// order, since the names of a DaemonSet's Pods are random.
func matches(got, want []string) bool {
	return slices.EqualFunc(got, want, func(line, pattern string) bool { return regexp.MustCompile("^" + pattern + "$").MatchString(line) }) ||
		len(got) == 2 && slices.EqualFunc([]string{got[1], got[0]}, want, func(line, pattern string) bool { return regexp.MustCompile("^" + pattern + "$").MatchString(line) })
}

// TestDeclaredPods checks that declared fields of a Pod are retained and missing ones are
// set.
func TestDeclaredPods(t *testing.T) {
	w := newWorld(t, settings(), nil)
	w.load(map[string]string{"all.yaml": node("a") + pod("bare", "x", "spec: {nodeName: other}\n") +
		pod("status", "x", "status: {podIP: 10.9.9.9, conditions: [{type: Ready, status: 'False'}]}\n") +
		pod("host", "x", "spec: {hostNetwork: true, nodeName: b}\n") +
		pod("host1", "x", "spec: {hostNetwork: true, nodeName: c}\n") + pod("host2", "x", "spec: {hostNetwork: true, nodeName: c}\n") +
		pod("pending", "x", "status: {phase: Pending}\n") +
		"apiVersion: v1\nkind: Node\nmetadata: {name: b}\nstatus: {addresses: [{type: InternalIP, address: 192.0.2.7}]}\n"})
	pods := w.pods()
	if p := pods["default/bare"]; p.Node != "other" || !p.Ready || !p.Simulated || len(p.IPs) != 1 {
		t.Errorf("a Pod without status: %+v", p)
	}
	if p := pods["default/status"]; p.Ready || p.Simulated || fmt.Sprint(p.IPs) != "[10.9.9.9]" || p.Node == "" {
		t.Errorf("a Pod with a status: %+v", p)
	}
	if p := pods["default/host"]; fmt.Sprint(p.IPs) != "[192.0.2.7]" {
		t.Errorf("a Pod in its Node's network: %+v", p)
	}
	if p := pods["default/pending"]; p.Ready || p.Node != "" || len(p.IPs) > 0 {
		t.Errorf("a Pod that waits for a Node: %+v", p)
	}
	if p, q := pods["default/host1"], pods["default/host2"]; len(p.IPs) != 1 || fmt.Sprint(p.IPs) != fmt.Sprint(q.IPs) {
		t.Errorf("two Pods in the network of a Node that is not declared: %v and %v", p.IPs, q.IPs)
	}
	w.store.View(func(v *cluster.View) {
		if n := v.Node("other"); n == nil || !n.Ready {
			t.Errorf("the Node that a Pod is on: %+v", n)
		}
		if n := v.Node("a"); !n.Ready {
			t.Errorf("a Node without a status: %+v", n)
		}
	})
	w.load(nil)
	w.store.View(func(v *cluster.View) {
		if v.Len(cluster.KindNode)+v.Len(cluster.KindPod) != 0 {
			t.Errorf("%d Nodes and %d Pods are left", v.Len(cluster.KindNode), v.Len(cluster.KindPod))
		}
	})
}

// TestAddressesAreStable checks that no two Pods share an address, and that a Pod's
// address does not change with other Pods, with the file that declares it, or after a
// restart with a snapshot.
func TestAddressesAreStable(t *testing.T) {
	tight := settings(func(c *simulate.Config) { c.PodRanges = prefixes("10.244.0.0/26", "fd00::/122") })
	w := newWorld(t, tight, nil)
	files := map[string]string{"a.yaml": workload("Deployment", "a", "replicas: 20"), "b.yaml": workload("StatefulSet", "b", "serviceName: b\nreplicas: 20")}
	w.load(files)
	first := addresses(w.pods())
	if len(first) != 40 || len(distinct(first)) != 40 {
		t.Fatalf("%d Pods have %d addresses, want 40: %v", len(first), len(distinct(first)), first)
	}
	fresh := newWorld(t, tight, nil)
	fresh.load(map[string]string{"one.yaml": files["b.yaml"] + files["a.yaml"]})
	if got := addresses(fresh.pods()); !maps.Equal(got, first) {
		t.Errorf("from files in another order: %v, want %v", got, first)
	}
	w.load(map[string]string{"b.yaml": files["b.yaml"]})
	w.load(map[string]string{"b.yaml": files["b.yaml"], "c.yaml": workload("Deployment", "c", "replicas: 20")})
	second := addresses(w.pods())
	for key, addr := range second {
		if strings.HasPrefix(key, "default/b-") && first[key] != addr {
			t.Errorf("%s moved from %s to %s", key, first[key], addr)
		}
	}
	again := newWorld(t, tight, w.store)
	again.load(map[string]string{"b.yaml": files["b.yaml"], "c.yaml": workload("Deployment", "c", "replicas: 20")})
	if got := addresses(again.pods()); !maps.Equal(got, second) {
		t.Errorf("after a restart with a snapshot: %v, want %v", got, second)
	}
}

func distinct(addrs map[string]string) map[string]bool {
	all := make(map[string]bool)
	for _, a := range addrs {
		all[a] = true
	}
	return all
}

// TestAddressDeclaredByAnotherPod checks that a simulated Pod gets another address when a
// Pod of the same Namespace declares the one that it has.
func TestAddressDeclaredByAnotherPod(t *testing.T) {
	w := newWorld(t, settings(), nil)
	db := workload("StatefulSet", "db", "serviceName: db")
	w.load(map[string]string{"a.yaml": db})
	had := w.pods()["default/db-0"].IPs[0]
	w.load(map[string]string{"a.yaml": db + pod("status", "x", fmt.Sprintf("status: {podIP: %s}\n", had))})
	if got := w.pods()["default/db-0"].IPs[0]; got == had {
		t.Errorf("two Pods have %s", got)
	}
}

// TestAddressDeclaredInAnotherNamespace checks that a simulated Pod gets another address
// when a Pod of another Namespace declares the one that it has.
func TestAddressDeclaredInAnotherNamespace(t *testing.T) {
	w := newWorld(t, settings(), nil)
	files := map[string]string{"a.yaml": pod("a", "x", "")}
	w.load(files)
	address := w.pods()["default/a"].IPs[0]
	files["b.yaml"] = strings.Replace(pod("b", "x", "status: {podIP: "+address.String()+"}\n"), "metadata: {", "metadata: {namespace: other, ", 1)
	w.load(files)
	if got := w.pods()["default/a"].IPs; len(got) != 1 || got[0] == address {
		t.Errorf("addresses of default/a: %v, want one other than %s, which other/b declares", got, address)
	}
}

// TestPodsBeyondTheRangeAreOmitted checks that a workload with more Pods than addresses
// is refused in part.
func TestPodsBeyondTheRangeAreOmitted(t *testing.T) {
	w := newWorld(t, settings(func(c *simulate.Config) { c.PodRanges = prefixes("10.244.0.0/29") }), nil)
	problems := w.load(map[string]string{"a.yaml": "# first\n" + workload("Deployment", "web", "replicas: 2000000000")})
	if len(problems) != 1 || !strings.Contains(problems[0], "a.yaml:2: deployment default/web: spec.replicas: 1999999994 Pods omitted: the range of Pods has no addresses for them") {
		t.Errorf("problems %q", problems)
	}
	if got := w.pods(); len(got) != 6 || len(distinct(addresses(got))) != 6 {
		t.Errorf("%d Pods with %v, want 6, the capacity of a /29", len(got), addresses(got))
	}
}

// TestEndpointsMirroring checks that Endpoints are mirrored, and the exceptions from that
// (page EndpointSlices, "EndpointSlice mirroring").
func TestEndpointsMirroring(t *testing.T) {
	const endpoints = "apiVersion: v1\nkind: Endpoints\nmetadata: {name: web%s}\nsubsets: [{addresses: [{ip: 192.0.2.1}], ports: [{port: 80}]}]\n---\n"
	service := func(rest string) string {
		return "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: [{port: 80}]" + rest + "}\n---\n"
	}
	for claim, test := range map[string]struct {
		text string
		want bool
	}{
		"of a Service without selector": {service("") + fmt.Sprintf(endpoints, ""), true},
		"skipped by a label":            {service("") + fmt.Sprintf(endpoints, ", labels: {endpointslice.kubernetes.io/skip-mirror: 'true'}"), false},
		"used for leader election":      {service("") + fmt.Sprintf(endpoints, ", annotations: {control-plane.alpha.kubernetes.io/leader: x}"), false},
		"of no Service":                 {fmt.Sprintf(endpoints, ""), false},
		"of a Service with a selector":  {service(", selector: {app: web}") + fmt.Sprintf(endpoints, ""), false},
	} {
		w := newWorld(t, settings(), nil)
		w.load(map[string]string{"a.yaml": test.text})
		mirrored := false
		w.store.View(func(v *cluster.View) {
			for s := range v.EndpointSlices() {
				mirrored = mirrored || len(s.Endpoints) == 1 && s.Endpoints[0].Addr == netip.MustParseAddr("192.0.2.1")
			}
		})
		if mirrored != test.want {
			t.Errorf("Endpoints %s: mirrored %t, want %t", claim, mirrored, test.want)
		}
	}
}

// TestAPIServerService checks that every cluster has the Service of the API server and
// that no other Service gets its address.
func TestAPIServerService(t *testing.T) {
	w := newWorld(t, settings(), nil)
	w.load(nil)
	key := cluster.Key{Namespace: "default", Name: "kubernetes"}
	addr := func() (text string) {
		w.store.View(func(v *cluster.View) { text = fmt.Sprint(v.Service(key).ClusterIPs) })
		return text
	}
	if got := addr(); got != "[10.96.0.1]" {
		t.Errorf("the API server's address is %s", got)
	}
	declared := func(name, ip string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: %s}\nspec: {clusterIP: %s, ports: [{port: 443}]}\n", name, ip)
	}
	for text, want := range map[string]string{
		declared("kubernetes", "10.96.0.1"):  "",
		declared("kubernetes", "10.96.0.77"): "may not change once set",
		declared("another", "10.96.0.1"):     "provided IP is already allocated",
	} {
		w = newWorld(t, settings(), nil)
		if problems := strings.Join(w.load(map[string]string{"a.yaml": text}), "\n"); !strings.Contains(problems, want) || (problems == "") != (want == "") {
			t.Errorf("%s: problems %q, want %q", text, problems, want)
		}
		if got := addr(); got != "[10.96.0.1]" {
			t.Errorf("%s: its address is %s", text, got)
		}
	}
}

func TestNewRejectsOverlappingRanges(t *testing.T) {
	for claim, cfg := range map[string]simulate.Config{
		"Pods' in Services'": settings(func(c *simulate.Config) { c.PodRanges = prefixes("10.96.7.0/24") }),
		"Pods' in Pods'":     settings(func(c *simulate.Config) { c.PodRanges = prefixes("10.244.0.0/16", "10.244.1.0/24") }),
	} {
		if _, err := simulate.New(cfg); err == nil || !strings.Contains(err.Error(), "overlaps") && !strings.Contains(err.Error(), "different families") {
			t.Errorf("%s: error %v", claim, err)
		}
	}
}

// TestInvalidPodTemplateIsRefused checks that a workload whose Pods the API server would
// reject has none, and that other workloads are not affected.
func TestInvalidPodTemplateIsRefused(t *testing.T) {
	w := newWorld(t, settings(), nil)
	problems := w.load(map[string]string{"a.yaml": workload("StatefulSet", "web.v1", "serviceName: web") + workload("Deployment", "web", "replicas: 1") +
		workload("StatefulSet", strings.Repeat("x", 62), "serviceName: web\nreplicas: 11")})
	if len(problems) != 2 || !strings.Contains(strings.Join(problems, "\n"), `statefulset default/web.v1: spec.template.spec: its Pods are invalid: hostname "web.v1-0" is not a DNS label`) {
		t.Errorf("problems %q", problems)
	}
	if got := w.pods(); len(got) != 1 {
		t.Errorf("Pods %v, want the Deployment's", addresses(got))
	}
}

// TestPodNamesAreReproducible checks that the same manifest produces the same Pod names
// each time that it is loaded.
func TestPodNamesAreReproducible(t *testing.T) {
	text := strings.Replace(workload("Deployment", "web", "replicas: 2"), "containers:", "hostnameOverride: a, enableServiceLinks: false, dnsConfig: {options: [{name: ndots, value: '1'}]}, containers:", 1)
	first := newWorld(t, settings(), nil)
	first.load(map[string]string{"a.yaml": text})
	second := newWorld(t, settings(), nil)
	second.load(map[string]string{"b.yaml": "# moved\n" + text})
	if a, b := addresses(first.pods()), addresses(second.pods()); len(a) != 2 || !maps.Equal(a, b) {
		t.Errorf("Pods %v, and then %v", a, b)
	}
}

// TestPodsWithoutAddressAreReported checks that Pods for which there is no address are
// reported, and get one when others are deleted.
func TestPodsWithoutAddressAreReported(t *testing.T) {
	w := newWorld(t, settings(func(c *simulate.Config) { c.PodRanges = prefixes("10.244.0.0/30") }), nil)
	text := pod("a", "x", "") + pod("b", "x", "")
	if problems := w.load(map[string]string{"a.yaml": text, "b.yaml": pod("c", "x", "")}); len(problems) != 1 || problems[0] != "b.yaml:1: pod default/c: the range of Pods has no address for it" {
		t.Errorf("problems %q", problems)
	}
	if problems := w.load(map[string]string{"b.yaml": pod("c", "x", "")}); len(problems) > 0 || len(w.pods()["default/c"].IPs) != 1 {
		t.Errorf("after a and b are deleted: problems %q, Pods %v", problems, addresses(w.pods()))
	}
}

// TestRecallWithChangedRanges checks that recalled addresses outside the configured
// ranges are replaced.
func TestRecallWithChangedRanges(t *testing.T) {
	w := newWorld(t, settings(), nil)
	files := map[string]string{"a.yaml": pod("a", "x", "")}
	w.load(files)
	again := newWorld(t, settings(func(c *simulate.Config) { c.PodRanges = prefixes("10.99.0.0/16", "fd00::/64") }), w.store)
	again.load(files)
	if got := again.pods()["default/a"].IPs; len(got) != 2 || !prefixes("10.99.0.0/16")[0].Contains(got[0]) {
		t.Errorf("addresses %v", got)
	}
}

// TestIncrementsEqualFromScratch checks that after any sequence of changes the model
// equals one loaded from the current manifests. The range of addresses is so large that
// no two names collide. Some sequences restart from the model, as from a snapshot.
// Usually few files change in a step, so that few Namespaces are in scope.
func TestIncrementsEqualFromScratch(t *testing.T) {
	wide := settings(func(c *simulate.Config) { c.PodRanges = prefixes("fd00::/64") })
	pieces := []string{
		node("a"), node("b"), strings.Replace(node("c"), "---", "status: {addresses: [{type: InternalIP, address: 192.0.2.7}]}\n---", 1),
		workload("Deployment", "web", "replicas: 2"), workload("Deployment", "web", "replicas: 1"), workload("DaemonSet", "agent", ""),
		workload("StatefulSet", "db", "serviceName: db\nreplicas: 2"), workload("Job", "load", "parallelism: 2\ncompletionMode: Indexed"),
		strings.Replace(node("c"), "---", "status: {conditions: [{type: Ready, status: 'True'}]}\n---", 1), workload("Job", "agent", "parallelism: 2"),
		pod("status", "x", "status: {podIP: 10.9.9.8}\n"), pod("status", "x", "spec: {nodeName: b}\nstatus: {podIP: 10.9.9.8, conditions: [{type: Ready, status: 'True'}]}\n"),
		pod("web-x", "web", ""), pod("agent-x", "agent", ""), pod("db-0", "db", "status: {podIP: 10.9.9.9}\n"), pod("db-0", "db", ""),
		pod("host", "x", "spec: {hostNetwork: true, nodeName: c}\n"), pod("pending", "web", "status: {phase: Pending}\n"),
		"apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {selector: {app: web}, ports: [{port: 80}]}\n---\n",
		"apiVersion: v1\nkind: Service\nmetadata: {name: db}\nspec: {clusterIP: None, selector: {app: db}, ports: [{port: 80}]}\n---\n",
	}
	for _, piece := range pieces {
		if !strings.Contains(piece, "kind: Node") {
			pieces = append(pieces, strings.Replace(piece, "metadata: {", "metadata: {namespace: other, ", 1))
		}
	}
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(t, wide, nil)
		var before map[string]string
		for step := range 12 {
			files := make(map[string]string)
			changed := []int{2, len(pieces)}[min(1, step%4)] // one in this many files changes
			for i, piece := range pieces {
				name := fmt.Sprintf("%02d.yaml", i)
				_, present := before[name]
				if random.IntN(changed) == 0 {
					present = !present
				}
				if present {
					files[name] = piece
				}
			}
			before = files
			if random.IntN(4) == 0 {
				w = newWorld(t, wide, w.store)
			}
			w.load(files)
			fresh := newWorld(t, wide, nil)
			fresh.load(files)
			if diff := cmp.Diff(fresh.dump(), w.dump()); diff != "" {
				t.Fatalf("seed %d, step %d: (-from scratch +incremental)\n%s", seed, step, diff)
			}
		}
	}
}

// dump returns the content of the model, except for the names of EndpointSlices, which
// depend on the order of changes.
func (w *world) dump() (lines []string) {
	w.store.View(func(v *cluster.View) {
		for n := range v.Namespaces() {
			lines = append(lines, "namespace "+n.Name)
		}
		for n := range v.Nodes() {
			lines = append(lines, fmt.Sprintf("node %+v", *n))
		}
		for p := range v.Pods() {
			lines = append(lines, fmt.Sprintf("pod %s %v %s ready=%t simulated=%t %v %s", p.Key, p.IPs, p.Node, p.Ready, p.Simulated, p.Labels, p.Spec.Hostname))
		}
		for s := range v.Services() {
			lines = append(lines, fmt.Sprintf("service %s %v %+v", s.Key, s.ClusterIPs, *s.Spec))
		}
		for s := range v.EndpointSlices() {
			var endpoints []string
			for _, e := range s.Endpoints {
				endpoints = append(endpoints, fmt.Sprintf("%+v", e))
			}
			slices.Sort(endpoints)
			lines = append(lines, fmt.Sprintf("slice of %s %s %v %v", s.Service, s.AddressType, s.Ports, endpoints))
		}
	})
	slices.Sort(lines)
	return lines
}
