package admission

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portolan.dev/portolan/internal/kube/apitest"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/dnsconfig/podrand"
)

// inNamespaces are: one that wants the policy, some with settings, and one that
// says nothing.
var inNamespaces = func() namespaces {
	made := make(namespaces)
	for name, of := range map[string][2]map[string]string{
		"shop":    {{policyKey: "ClusterFirstWithAutopath"}, nil},
		"small":   {{policyKey: "clusterFirstWithAutopath"}, nil},
		"off":     {{policyKey: "off"}, nil},
		"silent":  {nil, nil},
		"said":    {nil, {policyKey: "ClusterFirstWithAutopath"}},
		"few":     {{policyKey: "ClusterFirstWithAutopath"}, {ndotsKey: "2"}},
		"agent":   {{policyKey: "ClusterFirstWithAutopath"}, {nameserversKey: "169.254.20.10, fd00::10"}},
		"dots":    {{policyKey: "ClusterFirstWithAutopath"}, {ndotsKey: "many"}},
		"manner":  {{policyKey: "ClusterFirstWithAutopath"}, {ndotsKey: "16"}},
		"address": {{policyKey: "ClusterFirstWithAutopath"}, {nameserversKey: "169.254.20.10,agent"}},
		"own":     {{policyKey: "ClusterFirstWithAutopath"}, {nameserversKey: "169.254.20.10,::1"}},
		"nowhere": {{policyKey: "ClusterFirstWithAutopath"}, {nameserversKey: "0.0.0.0"}},
		"many":    {{policyKey: "ClusterFirstWithAutopath"}, {nameserversKey: "224.0.0.251"}},
		"empty":   {{policyKey: "ClusterFirstWithAutopath"}, {nameserversKey: ""}},
		"much":    {{policyKey: "ClusterFirstWithAutopath"}, {nameserversKey: "10.0.0.1,10.0.0.2,10.0.0.3,10.0.0.4"}},
	} {
		made[name] = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: of[0], Annotations: of[1]}}
	}
	return made
}()

// wantsIt is the annotations of a Pod that wants the policy.
const wantsIt = `{"portolan.dev/dns-policy": "ClusterFirstWithAutopath"}`

// config is the dnsConfig of a Pod that gets the policy and has none of its own.
func config(namespace, nameservers, ndots string) string {
	return fmt.Sprintf(`{"dnsPolicy": "None", "dnsConfig": {"nameservers": [%s], "searches": ["search.%s.cluster.local.ap.k8s.io"], "options": [{"name": "ndots", "value": "%s"}]}}`,
		nameservers, namespace, ndots)
}

const clusterFirst = `{"dnsPolicy": "ClusterFirst"}`

// mutations are Pods and what becomes of them: their spec, unless it is empty;
// then they stay as they are.
var mutations = map[string]struct {
	namespace, annotations, spec string
	want, warning                string
}{
	// Who wants it.
	"nobody said anything":           {"silent", "", clusterFirst, "", ""},
	"the Pod wants it":               {"silent", wantsIt, clusterFirst, config("silent", `"10.96.0.10"`, "5"), ""},
	"with a small c":                 {"silent", `{"portolan.dev/dns-policy": "clusterFirstWithAutopath"}`, clusterFirst, config("silent", `"10.96.0.10"`, "5"), ""},
	"the Namespace wants it":         {"shop", "", clusterFirst, config("shop", `"10.96.0.10"`, "5"), ""},
	"the Namespace, with a small c":  {"small", "", clusterFirst, config("small", `"10.96.0.10"`, "5"), ""},
	"both want it":                   {"shop", wantsIt, clusterFirst, config("shop", `"10.96.0.10"`, "5"), ""},
	"the Pod does not":               {"shop", `{"portolan.dev/dns-policy": "off"}`, clusterFirst, "", ""},
	"the Pod says nothing at length": {"shop", `{"portolan.dev/dns-policy": ""}`, clusterFirst, "", ""},
	"the Pod wants something else":   {"shop", `{"portolan.dev/dns-policy": "Default"}`, clusterFirst, "", `"Default" is not ClusterFirstWithAutopath or off`},
	"the Namespace is off":           {"off", "", clusterFirst, "", ""},
	"the Namespace has no label":     {"said", "", clusterFirst, "", ""},
	"the policy as the KEP has it":   {"silent", "", `{"dnsPolicy": "ClusterFirstWithAutopath"}`, config("silent", `"10.96.0.10"`, "5"), ""},
	"so, with a small c":             {"silent", "", `{"dnsPolicy": "clusterFirstWithAutopath"}`, config("silent", `"10.96.0.10"`, "5"), ""},
	"the policy is not spelled out":  {"shop", "", `{}`, config("shop", `"10.96.0.10"`, "5"), ""},

	// Who can't have it.
	"what a node runs by itself":       {"shop", `{"kubernetes.io/config.mirror": "0a1b", "portolan.dev/dns-policy": "ClusterFirstWithAutopath"}`, clusterFirst, "", ""},
	"None is decided":                  {"shop", wantsIt, `{"dnsPolicy": "None", "dnsConfig": {"nameservers": ["192.0.2.1"]}}`, "", ""},
	"Default is decided":               {"shop", "", `{"dnsPolicy": "Default"}`, "", ""},
	"Default, and the Pod wants it":    {"silent", wantsIt, `{"dnsPolicy": "Default"}`, "", "its dnsPolicy is Default"},
	"the node's network":               {"shop", "", `{"dnsPolicy": "ClusterFirst", "hostNetwork": true}`, "", ""},
	"there, and the Pod wants it":      {"shop", wantsIt, `{"dnsPolicy": "ClusterFirst", "hostNetwork": true}`, "", "it uses the network of the node"},
	"the node's network, with cluster": {"shop", "", `{"dnsPolicy": "ClusterFirstWithHostNet", "hostNetwork": true}`, "", ""},
	"a policy that nobody knows":       {"shop", "", `{"dnsPolicy": "ClusterLast"}`, "", ""},

	// What the Pod has of its own stays.
	"its own nameserver": {"shop", "", `{"dnsPolicy": "ClusterFirst", "dnsConfig": {"nameservers": ["192.0.2.1"]}}`, `{"dnsPolicy": "None", "dnsConfig": {
		"nameservers": ["10.96.0.10", "192.0.2.1"], "searches": ["search.shop.cluster.local.ap.k8s.io"], "options": [{"name": "ndots", "value": "5"}]}}`, ""},
	"its own all": {"shop", "", `{"dnsPolicy": "ClusterFirst", "dnsConfig": {"searches": ["corp.example"], "options": [{"name": "edns0"}, {"name": "ndots", "value": "1"}]}}`, `{"dnsPolicy": "None", "dnsConfig": {
		"nameservers": ["10.96.0.10"], "searches": ["search.shop.cluster.local.ap.k8s.io", "corp.example"], "options": [{"name": "ndots", "value": "1"}, {"name": "edns0"}]}}`, ""},
	"what nobody knows yet": {"shop", "", `{"dnsPolicy": "ClusterFirst", "dnsConfig": {"later": true}, "also": 1}`, `{"also": 1, "dnsPolicy": "None", "dnsConfig": {"later": true,
		"nameservers": ["10.96.0.10"], "searches": ["search.shop.cluster.local.ap.k8s.io"], "options": [{"name": "ndots", "value": "5"}]}}`, ""},
	"a dnsConfig of nothing": {"shop", "", `{"dnsPolicy": "ClusterFirst", "dnsConfig": null}`, config("shop", `"10.96.0.10"`, "5"), ""},
	"no room for its nameservers": {"shop", "", `{"dnsConfig": {"nameservers": ["192.0.2.1", "192.0.2.2", "192.0.2.3"]}}`, "",
		"1 nameserver is left out"},
	"what the API server refuses": {"shop", "", `{"dnsConfig": {"nameservers": ["ns.example"]}}`, "", `spec.dnsConfig.nameservers[0]: Invalid value: "ns.example"`},
	"an option of two words":      {"shop", "", `{"dnsConfig": {"options": [{"name": "ndots 3"}]}}`, "", `dnsConfig has "ndots 3"`},

	// What the Namespace says.
	"fewer dots":               {"few", "", clusterFirst, config("few", `"10.96.0.10"`, "2"), ""},
	"the Pod's dots come last": {"few", "", `{"dnsConfig": {"options": [{"name": "ndots", "value": "7"}]}}`, config("few", `"10.96.0.10"`, "7"), ""},
	"an agent on the node":     {"agent", "", clusterFirst, config("agent", `"169.254.20.10", "fd00::10"`, "5"), ""},
	"dots that are no number":  {"dots", "", clusterFirst, "", `annotation portolan.dev/ndots of namespace dots: "many" is not between 0 and 15`},
	"too many dots":            {"manner", "", clusterFirst, "", `"16" is not between 0 and 15`},
	"an agent by name":         {"address", "", clusterFirst, "", `annotation portolan.dev/nameservers of namespace address: "agent" is not an address`},
	"the Pod itself as agent":  {"own", "", clusterFirst, "", `::1 is not an address that Pods can query`},
	"an agent nowhere":         {"nowhere", "", clusterFirst, "", `0.0.0.0 is not an address that Pods can query`},
	"an agent that is many":    {"many", "", clusterFirst, "", `224.0.0.251 is not an address that Pods can query`},
	"no agent":                 {"empty", "", clusterFirst, "", `"" is not an address`},
	"too many agents":          {"much", "", clusterFirst, "", "1 nameserver is left out"},
}

func podJSON(annotations, spec string) string {
	if annotations == "" {
		annotations = "null"
	}
	return fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": %s}, "spec": %s}`, annotations, spec)
}

// patched is the object with the response's patch.
func patched(t *testing.T, object string, response *admissionv1.AdmissionResponse) map[string]any {
	t.Helper()
	var document map[string]any
	if err := json.Unmarshal([]byte(object), &document); err != nil {
		t.Fatal(err)
	}
	if response.Patch == nil {
		return document
	}
	var patch []apitest.Operation
	if err := json.Unmarshal(response.Patch, &patch); err != nil {
		t.Fatal(err)
	}
	if err := apitest.Apply(document, patch); err != nil {
		t.Fatalf("patch %s: %v", response.Patch, err)
	}
	return document
}

// TestMutate checks which Pods get the DNS policy, its content, and that a second review
// changes nothing.
func TestMutate(t *testing.T) {
	h, s := newTestHandler(settings, inNamespaces)
	for claim, tt := range mutations {
		t.Run(claim, func(t *testing.T) {
			object := podJSON(tt.annotations, tt.spec)
			response := ask(t, h, "/mutate", request(pods, tt.namespace, object))
			if !response.Allowed {
				t.Fatalf("denied: %+v", response.Result)
			}
			result, want := ResultUnchanged, tt.spec
			if tt.want != "" {
				result, want = ResultChanged, tt.want
			}
			got := patched(t, object, response)
			if diff := cmp.Diff(patched(t, podJSON(tt.annotations, want), new(admissionv1.AdmissionResponse)), got); diff != "" {
				t.Errorf("the Pod (-want +got):\n%s", diff)
			}
			if tt.warning == "" && len(response.Warnings) > 0 || tt.warning != "" && (len(response.Warnings) != 1 || !strings.Contains(response.Warnings[0], tt.warning)) {
				t.Errorf("warnings %q, want %q", response.Warnings, tt.warning)
			}
			if tt.warning != "" {
				result = ResultWarned
			}
			if told := s.last(t); told != "mutate CREATE pods "+result {
				t.Errorf("told %q, want %s", told, result)
			}
			if result != ResultChanged {
				return
			}
			text, err := json.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			if again := ask(t, h, "/mutate", request(pods, tt.namespace, string(text))); again.Patch != nil || len(again.Warnings) > 0 {
				t.Errorf("a second review: %s %q", again.Patch, again.Warnings)
			}
		})
	}
}

// TestMutateOnlyNewPods checks that other requests are admitted unchanged.
func TestMutateOnlyNewPods(t *testing.T) {
	h, _ := newTestHandler(settings, inNamespaces)
	for claim, change := range map[string]func(*admissionv1.AdmissionRequest){
		"an update":    func(r *admissionv1.AdmissionRequest) { r.Operation = admissionv1.Update },
		"a deletion":   func(r *admissionv1.AdmissionRequest) { r.Operation, r.Object.Raw = admissionv1.Delete, nil },
		"another kind": func(r *admissionv1.AdmissionRequest) { r.Resource = services },
		"a binding":    func(r *admissionv1.AdmissionRequest) { r.SubResource = "binding" },
	} {
		r := request(pods, "shop", aPod)
		change(r)
		if response := ask(t, h, "/mutate", r); !response.Allowed || response.Patch != nil || len(response.Warnings) > 0 {
			t.Errorf("%s: %+v, want nothing done", claim, response)
		}
	}
}

// TestMutatedPodIsEquivalent checks that the kubelet gives a mutated Pod the resolv.conf
// of the policy, and that the API server accepts the Pod.
func TestMutatedPodIsEquivalent(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 5))
	cfg := settings
	cfg.ClusterDNS = append(cfg.ClusterDNS, netip.MustParseAddr("fd00:10:96::a"))
	h, _ := newTestHandler(cfg, inNamespaces)
	node := dnsconfig.NodeSettings{ClusterDomain: cfg.ClusterDomain, ClusterDNS: cfg.ClusterDNS}
	patches := 0
	for range 2000 {
		before := randomPod(random)
		text, err := json.Marshal(before)
		if err != nil {
			t.Fatal(err)
		}
		response := ask(t, h, "/mutate", request(pods, "shop", string(text)))
		if response.Patch == nil {
			continue
		}
		patches++
		made, err := json.Marshal(patched(t, string(text), response))
		if err != nil {
			t.Fatal(err)
		}
		after := new(corev1.Pod)
		if err := decode(made, after); err != nil {
			t.Fatal(err)
		}
		subject, changed := podSubject("shop", before), podSubject("shop", after)
		p, q := subject.Settings(), changed.Settings()
		p.Policy = dnsconfig.ClusterFirstWithAutopath
		if errs := dnsconfig.Validate(q); len(errs) > 0 {
			t.Fatalf("the API server refuses what became of %s: %v", text, errs[0])
		}
		want, got := dnsconfig.Resolve(p, node), dnsconfig.Resolve(q, dnsconfig.NodeSettings{})
		if got.Policy != dnsconfig.None || !reflect.DeepEqual(got.Config, want.Config) {
			t.Fatalf("%s\nbecame %s\nwith %+v, want %+v", text, made, got.Config, want.Config)
		}
	}
	if patches < 100 {
		t.Errorf("%d of 2000 Pods were changed, want more", patches)
	}
}

// randomPod says of DNS what it may.
func randomPod(random *rand.Rand) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	pod.Spec.DNSPolicy = podrand.Pick(random, corev1.DNSClusterFirst, "", "ClusterFirstWithAutopath", corev1.DNSDefault)
	pod.Spec.HostNetwork = random.IntN(10) == 0
	if random.IntN(5) > 0 {
		pod.Spec.DNSConfig = &corev1.PodDNSConfig{
			Nameservers: podrand.Several(random, 2, "192.0.2.1", "10.96.0.10", "2001:DB8::1", "nowhere"),
			Searches:    podrand.Searches(random),
		}
		for _, o := range podrand.Several(random, 3, "ndots=2", "ndots:3=", "edns0=", "timeout=1", "a b=c", "=x") {
			name, value, _ := strings.Cut(o, "=")
			option := corev1.PodDNSConfigOption{Name: name}
			if value != "" {
				option.Value = &value
			}
			pod.Spec.DNSConfig.Options = append(pod.Spec.DNSConfig.Options, option)
		}
	}
	return pod
}

// TestMutateToAgent checks that Pods query the agent on their node first, then the
// cluster DNS, and that their search domain has the suffix that servers recognize.
func TestMutateToAgent(t *testing.T) {
	cfg := settings
	cfg.NodeDNS, cfg.AutopathSuffix = []netip.Addr{netip.MustParseAddr("169.254.20.10")}, "search.example"
	h, _ := newTestHandler(cfg, inNamespaces)
	pod := `{"spec": {"containers": [{"name": "a", "image": "a"}]}}`
	after := patched(t, pod, ask(t, h, "/mutate", request(pods, "shop", pod)))
	made := new(corev1.Pod)
	text, err := json.Marshal(after)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, made); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"169.254.20.10", "10.96.0.10"}, made.Spec.DNSConfig.Nameservers); diff != "" {
		t.Errorf("nameservers (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"search.shop.cluster.local.search.example"}, made.Spec.DNSConfig.Searches); diff != "" {
		t.Errorf("searches (-want +got):\n%s", diff)
	}
}
