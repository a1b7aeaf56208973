package api

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/apitest"
)

// TestFailClosed checks that a policy with an invalid field is in force without it, and that this is
// logged.
func TestFailClosed(t *testing.T) {
	t.Parallel()
	for name, watchList := range map[string]bool{"list": false, "watch": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.cfg.Kinds, w.cfg.Detail, w.cfg.WatchList = []cluster.Kind{cluster.KindNetworkPolicy}, ForPolicy, watchList
			port := func(n int32) networkingv1.NetworkPolicyIngressRule {
				number := intstr.FromInt32(n)
				return networkingv1.NetworkPolicyIngressRule{Ports: []networkingv1.NetworkPolicyPort{{Port: &number}}}
			}
			policy := &networkingv1.NetworkPolicy{ObjectMeta: meta("web")}
			policy.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{port(0), port(80)}
			w.api.Put(policy)
			w.live()
			got := func() (p *cluster.NetworkPolicy) {
				w.store.View(func(v *cluster.View) { p = cluster.NetworkPolicies.Get(v, cluster.Key{Namespace: "shop", Name: "web"}) })
				return p
			}
			rule := cluster.PolicyRule{Ports: []cluster.PolicyPort{{Protocol: cluster.TCP, Number: 80, End: 80}}}
			want := &cluster.NetworkPolicy{
				Key: cluster.Key{Namespace: "shop", Name: "web"}, Ingress: true, IngressRules: []cluster.PolicyRule{rule},
			}
			if d := cmp.Diff(want, got()); d != "" {
				t.Errorf("policy (-want +got)\n%s", d)
			}
			w.wantLines(1, "level=ERROR", "what is invalid lets nothing through", "spec.ingress[0].ports[0].port")
			if got := w.status(cluster.KindNetworkPolicy).Invalid; got != 1 {
				t.Errorf("%d invalid objects, want 1", got)
			}
			policy = policy.DeepCopy()
			policy.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{port(0)}
			w.api.Put(policy)
			w.await("the policy allows nothing", func() bool { return len(got().IngressRules) == 0 })
		})
	}
}

// TestUndecodable checks that an object whose JSON does not have the types of the API does not keep the
// others of its kind from being read: a policy is in force with what can be read, and another object is
// refused.
func TestUndecodable(t *testing.T) {
	t.Parallel()
	const good = `{"metadata":{"name":"good"},"spec":{"tier":"Admin","priority":3,"subject":{"namespaces":{}}}}`
	policy := func(tier, egress string) string {
		return `{"metadata":{"name":"bad"},"spec":{"tier":"` + tier + `","priority":3,"subject":{"namespaces":{}},"egress":[` + egress + `]}}`
	}
	const wrong = `{"action":"Deny","to":[{"networks":"0.0.0.0/0"}]}`
	var lists atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		out.Header().Set("Content-Type", "application/json")
		namespaces := strings.HasSuffix(r.URL.Path, "/namespaces")
		switch watch := r.URL.Query().Get("watch") != ""; {
		case watch && !namespaces && lists.Load() == 1:
			fmt.Fprintf(out, `{"type":"MODIFIED","object":{"apiVersion":"policy.networking.k8s.io/v1alpha2","kind":"ClusterNetworkPolicy",%s}`, policy("Baseline", wrong)[1:])
		case watch:
			out.(http.Flusher).Flush()
			<-r.Context().Done()
		case namespaces:
			fmt.Fprint(out, `{"apiVersion":"v1","kind":"NamespaceList","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"shop","labels":{"a":5}}},{"metadata":{"name":"store"}}]}`)
		case lists.Add(1) == 1:
			fmt.Fprintf(out, `{"apiVersion":"policy.networking.k8s.io/v1alpha2","kind":"ClusterNetworkPolicyList","metadata":{"resourceVersion":"1"},"items":[%s,%s]}`, policy("Admin", wrong+`,{"action":5,"to":[]}`), good)
		default:
			fmt.Fprintf(out, `{"apiVersion":"policy.networking.k8s.io/v1alpha2","kind":"ClusterNetworkPolicyList","metadata":{"resourceVersion":"2"},"items":[%s,%s]}`, policy("Baseline", wrong), good)
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	w := newWorld(t)
	w.cfg.Kubeconfig = filepath.Join(t.TempDir(), "config")
	apitest.WriteKubeconfig(t, w.cfg.Kubeconfig, server.URL)
	w.cfg.Kinds, w.cfg.Detail, w.cfg.WatchList = []cluster.Kind{cluster.KindClusterNetworkPolicy, cluster.KindNamespace}, All, false
	w.start()
	t.Cleanup(w.end)
	var last *cluster.ClusterNetworkPolicy
	w.await("the policy is read again after an event that cannot be decoded", func() (found bool) {
		w.store.View(func(v *cluster.View) {
			last = cluster.ClusterNetworkPolicies.Get(v, cluster.Key{Name: "bad"})
			found = last != nil && last.Tier == cluster.BaselineTier && v.Len(cluster.KindClusterNetworkPolicy) == 2 &&
				v.Namespace("store") != nil && v.Namespace("shop") == nil
		})
		return found
	})
	want := &cluster.ClusterNetworkPolicy{
		Name: "bad", Tier: cluster.BaselineTier, Priority: 3, EgressRules: []cluster.TierRule{{Action: cluster.Deny, Unknown: true}},
	}
	if d := cmp.Diff(want, last); d != "" {
		t.Errorf("policy (-want +got)\n%s", d)
	}
	w.wantLines(1, "level=ERROR", "what is invalid lets nothing through", "object=bad", "egress.to.networks", "spec.egress[1].action")
	w.wantLines(1, "level=ERROR", "object refused", "object=shop", "metadata.labels")
}

// TestUndecodableProtobuf checks that a NetworkPolicy whose spec is not the API's message isolates its
// namespace, and that others are read.
func TestUndecodableProtobuf(t *testing.T) {
	t.Parallel()
	item := func(o *networkingv1.NetworkPolicy) []byte {
		data, err := o.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	const metadata, spec = 1, 2
	broken, err := new(meta("bad")).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	broken = protowire.AppendBytes(protowire.AppendTag(nil, metadata, protowire.BytesType), broken)
	broken = protowire.AppendBytes(protowire.AppendTag(broken, spec, protowire.BytesType), []byte{0xff})
	version, err := (&metav1.ListMeta{ResourceVersion: "1"}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	listed := protowire.AppendBytes(protowire.AppendTag(nil, fieldMetadata, protowire.BytesType), version)
	for _, o := range [][]byte{broken, item(&networkingv1.NetworkPolicy{ObjectMeta: meta("good")})} {
		listed = protowire.AppendBytes(protowire.AppendTag(listed, fieldItems, protowire.BytesType), o)
	}
	answer, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicyList"}, Raw: listed}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		out.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
		if r.URL.Query().Get("watch") != "" {
			out.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		_, _ = out.Write(append([]byte(protobufMagic), answer...))
	}))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	w := newWorld(t)
	w.cfg.Kubeconfig = filepath.Join(t.TempDir(), "config")
	apitest.WriteKubeconfig(t, w.cfg.Kubeconfig, server.URL)
	w.cfg.Kinds, w.cfg.Detail, w.cfg.WatchList = []cluster.Kind{cluster.KindNetworkPolicy}, ForPolicy, false
	w.start()
	t.Cleanup(w.end)
	w.awaitFreshness(cluster.Live, cluster.KindNetworkPolicy)
	w.store.View(func(v *cluster.View) {
		for name, egress := range map[string]bool{"bad": true, "good": false} {
			key := cluster.Key{Namespace: "shop", Name: name}
			want := &cluster.NetworkPolicy{Key: key, Ingress: true, Egress: egress}
			if d := cmp.Diff(want, cluster.NetworkPolicies.Get(v, key)); d != "" {
				t.Errorf("%s (-want +got)\n%s", name, d)
			}
		}
	})
	w.wantLines(1, "level=ERROR", "what is invalid lets nothing through", "object=shop/bad")
}
