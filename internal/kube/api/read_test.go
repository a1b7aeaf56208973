package api

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/apitest"
)

// ways are the ways to list: as a watch, as old servers do where that is asked
// for, and as it is not.
var ways = map[string]apitest.Fault{"watch": {}, "old server": {NoWatchList: true}, listing: {}}

const listing = "list"

// TestRead checks that all objects of each kind are read, and their changes followed.
func TestRead(t *testing.T) {
	t.Parallel()
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.cfg.WatchList = name != listing
			w.api.Misbehave(way)
			w.api.Put(namespace("shop"), service("web", "10.0.0.1"), slice("web-1", "10.1.0.1"), pod("web-x", "10.1.0.1", corev1.PodRunning), node("n1", "192.0.2.1"))
			w.live()
			w.awaitModel("listing", "Namespace default", "Namespace shop", "Service shop/web [10.0.0.1]",
				"EndpointSlice shop/web-1 of web: [10.1.0.1]", "Pod shop/web-x [10.1.0.1]", "Node n1 [192.0.2.1]")
			for _, resource := range []string{"namespaces", "services", "endpointslices", "pods", "nodes"} {
				plain := func(r apitest.Request) bool { return !r.Watch }
				if got := slices.ContainsFunc(w.requests(resource, 0), plain); got != (way.NoWatchList || name == listing) {
					t.Errorf("%s: plain lists were asked for: %v", resource, got)
				}
			}

			w.api.Put(namespace("bar"), service("db", "10.0.0.2"), slice("web-2", "10.1.0.2"), pod("web-y", "10.1.0.2", corev1.PodPending), node("n2", "192.0.2.2"))
			w.api.Put(service("web", "10.0.0.9"), slice("web-1", "10.1.0.9"), pod("web-x", "10.1.0.9", corev1.PodRunning), node("n1", "192.0.2.9"))
			w.awaitModel("adding and modifying",
				"Namespace bar", "Namespace default", "Namespace shop", "Service shop/db [10.0.0.2]", "Service shop/web [10.0.0.9]",
				"EndpointSlice shop/web-1 of web: [10.1.0.9]", "EndpointSlice shop/web-2 of web: [10.1.0.2]",
				"Pod shop/web-x [10.1.0.9]", "Pod shop/web-y [10.1.0.2]", "Node n1 [192.0.2.9]", "Node n2 [192.0.2.2]")

			w.api.Delete(namespace("shop"), service("web", ""), slice("web-1", ""), pod("web-x", "", ""), node("n1", ""))
			w.awaitModel("deleting", "Namespace bar", "Namespace default", "Service shop/db [10.0.0.2]",
				"EndpointSlice shop/web-2 of web: [10.1.0.2]", "Pod shop/web-y [10.1.0.2]", "Node n2 [192.0.2.2]")

			w.api.Bookmark()
			w.await("a bookmark", func() bool { return w.status(cluster.KindService).Events[eventBookmark] == 1 })
			if diff := cmp.Diff([eventTypes]uint64{1, 1, 1, 1, 1}, w.status(cluster.KindService).Events); diff != "" {
				t.Errorf("events of Services (-want +got):\n%s", diff)
			}
			w.wantLines(0, "level=") // nothing is wrong
		})
	}
}

// TestOptionalKinds checks that Pods and Nodes are read only if required, and only Pods
// with addresses.
func TestOptionalKinds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.Kinds = kindsOfNames()
	w.api.Put(pod("runs", "10.1.0.1", corev1.PodRunning), pod("done", "10.1.0.2", corev1.PodSucceeded), pod("failed", "10.1.0.3", corev1.PodFailed))
	w.live()
	w.awaitModel("listing", "Namespace default", "Pod shop/runs [10.1.0.1]")
	for _, r := range w.requests("pods", 0) {
		if !strings.Contains(r.URL, "fieldSelector=status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed&") {
			t.Errorf("request %s has no fieldSelector", r.URL)
		}
	}
	if got := w.requests("nodes", 0); len(got) > 0 {
		t.Errorf("requests for Nodes, which are not read: %v", got)
	}
	w.api.Put(pod("runs", "10.1.0.1", corev1.PodSucceeded), pod("new", "10.1.0.4", corev1.PodRunning))
	w.awaitModel("finishing", "Namespace default", "Pod shop/new [10.1.0.4]")

	other := newWorld(t)
	other.cfg.Kinds = without(other.cfg.Kinds, cluster.KindPod)
	other.api.Put(pod("runs", "10.1.0.1", corev1.PodRunning), node("n1", "192.0.2.1"))
	other.live()
	other.awaitModel("listing without Pods", "Namespace default", "Node n1 [192.0.2.1]")
	if got := other.requests("pods", 0); len(got) > 0 {
		t.Errorf("requests for Pods, which are not read: %v", got)
	}
}

// TestReadWholeObjects checks that all kinds are read, with all fields of the model.
func TestReadWholeObjects(t *testing.T) {
	t.Parallel()
	for name, watchList := range map[string]bool{"list": false, "watch": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.cfg.Kinds, w.cfg.Detail, w.cfg.WatchList = cluster.Kinds(), All, watchList
			meta := metav1.ObjectMeta{Namespace: "shop", Name: "web"}
			template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{DNSPolicy: corev1.DNSNone}}
			web := service("web", "10.0.0.1")
			web.Spec.Selector = map[string]string{"app": "web"}
			runs := pod("runs", "10.1.0.1", corev1.PodRunning)
			runs.Spec.Subdomain = "web"
			w.api.Put(web, runs, node("n1", "192.0.2.1"),
				&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Template: template}},
				&appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Template: template}},
				&appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Template: template}},
				&batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Template: template}},
				&batchv1.CronJob{ObjectMeta: meta, Spec: batchv1.CronJobSpec{JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: template}}}},
				&networkingv1.NetworkPolicy{ObjectMeta: meta},
			)
			w.start()
			w.awaitFreshness(cluster.Live, cluster.Kinds()...)
			key := cluster.Key{Namespace: "shop", Name: "web"}
			w.store.View(func(v *cluster.View) {
				for _, k := range cluster.WorkloadKinds() {
					if got := v.Workload(k, key); got == nil || got.Spec.DNSPolicy != "None" {
						t.Errorf("%s = %+v, want one with the policy None", k, got)
					}
				}
				if v.Len(cluster.KindNetworkPolicy) != 1 || v.Service(key).Selector["app"] != "web" {
					t.Errorf("%d NetworkPolicies, want 1; selector %v, want app: web", v.Len(cluster.KindNetworkPolicy), v.Service(key).Selector)
				}
				if p := v.Pod(cluster.Key{Namespace: "shop", Name: "runs"}); p == nil || p.Spec == nil || p.Spec.Subdomain != "web" {
					t.Errorf("Pod = %+v, want one with a subdomain", p)
				}
			})
			w.api.Delete(&appsv1.Deployment{ObjectMeta: meta}, &networkingv1.NetworkPolicy{ObjectMeta: meta})
			w.await("what is deleted is gone", func() (gone bool) {
				w.store.View(func(v *cluster.View) {
					gone = v.Len(cluster.KindDeployment) == 0 && v.Len(cluster.KindNetworkPolicy) == 0 && v.Len(cluster.KindJob) == 1
				})
				return gone
			})
		})
	}
}

// TestKindsBecomeLiveAlone checks that a kind that cannot be listed does not delay
// others.
func TestKindsBecomeLiveAlone(t *testing.T) {
	t.Parallel()
	for _, r := range resourcesOfNames() {
		t.Run(r.Resource, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.api.Misbehave(apitest.Fault{Status: 500, Resource: r.Resource})
			w.start()
			for _, k := range kindsRead() {
				if k != r.Model {
					w.awaitFreshness(cluster.Live, k)
				}
			}
			w.await("a problem", func() bool { return w.status(r.Model).Problem != nil })
			if got := w.freshness(r.Model); got != cluster.Loading {
				t.Errorf("%s is %s, want loading", r.Model, got)
			}
			w.api.Misbehave(apitest.Fault{})
			w.awaitFreshness(cluster.Live, r.Model)
		})
	}
}

// TestScopes checks that only the configured Namespaces and Services are read, and that
// other objects of a snapshot are deleted after the list.
func TestScopes(t *testing.T) {
	t.Parallel()
	labeled := func(name, app string) *corev1.Service {
		s := service(name, "10.0.0.1")
		s.Labels = map[string]string{"app": app}
		return s
	}
	w := newWorld(t)
	w.cfg.Namespaces, w.cfg.ServiceSelector = []string{"shop", "nowhere"}, "app in (web, api)"
	w.api.Put(namespace("shop"), namespace("other"), labeled("web", "web"), labeled("db", "db"), labeled("other/web", "web"),
		slice("web-1", "10.1.0.1"), slice("other/web-1", "10.1.0.2"),
		pod("web-x", "10.1.0.1", corev1.PodRunning), pod("other/web-x", "10.1.0.2", corev1.PodRunning), node("n1", "192.0.2.1"))
	remembered := w.remember()
	w.api.Misbehave(apitest.Fault{Status: 500, Resource: "services"})
	w.start()
	w.awaitFreshness(cluster.Live, cluster.KindNamespace, cluster.KindEndpointSlice, cluster.KindPod, cluster.KindNode)
	chosen := []string{"Namespace shop", "EndpointSlice shop/web-1 of web: [10.1.0.1]", "Pod shop/web-x [10.1.0.1]", "Node n1 [192.0.2.1]"}
	w.awaitModel("listing all but Services", append(remembered[1:], chosen...)...) // the Namespace is not remembered any more

	w.api.Misbehave(apitest.Fault{})
	w.awaitFreshness(cluster.Live, cluster.KindService)
	w.awaitModel("listing", append(chosen, "Service shop/web [10.0.0.1]")...)

	w.api.Put(labeled("db", "api"), labeled("web", "db"), labeled("other/db", "web"), namespace("nowhere"), labeled("nowhere/web", "web"))
	w.awaitModel("moving between selections", append(chosen, "Service shop/db [10.0.0.1]", "Namespace nowhere", "Service nowhere/web [10.0.0.1]")...)

	for _, r := range w.api.Requests() {
		in := strings.Contains(r.URL, "/namespaces/shop/") || strings.Contains(r.URL, "/namespaces/nowhere/") ||
			strings.Contains(r.URL, "fieldSelector=metadata.name%3Dshop&") || strings.Contains(r.URL, "fieldSelector=metadata.name%3Dnowhere&")
		if r.Resource != "nodes" && !in {
			t.Errorf("request %s asks for more than its Namespaces", r.URL)
		}
	}
}

// TestInvalidObjectKeepsLastVersion checks that an object that becomes invalid keeps its
// last valid version, and is logged once.
func TestInvalidObjectKeepsLastVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.api.Put(service("web", "10.0.0.1"))
	w.live()
	// sync waits until all that was put is read: one watch brings it in order.
	sentinels := 0
	sync := func() {
		t.Helper()
		name := fmt.Sprintf("sentinel-%d", sentinels)
		sentinels++
		w.api.Put(service(name, "10.0.1.1"))
		w.awaitService(name)
		w.api.Delete(service(name, ""))
	}
	wants := func(claim string, lines int, objects ...string) {
		t.Helper()
		sync()
		w.awaitModel(claim, append(objects, "Namespace default")...)
		w.wantLines(lines, "object refused", "resource=services", "object=shop/web", "spec.clusterIP", "10.0.0.x")
		w.wantLines(lines, "object refused")
	}
	wants("listing", 0, "Service shop/web [10.0.0.1]")
	w.api.Put(service("web", "10.0.0.x"))
	wants("breaking it", 1, "Service shop/web [10.0.0.1]")
	w.api.Put(service("web", "10.0.0.x"))
	wants("an event without a difference", 1, "Service shop/web [10.0.0.1]")
	w.api.Forget()
	w.api.Cut()
	wants("listing anew", 1, "Service shop/web [10.0.0.1]")
	w.api.Put(service("web", "10.0.0.2"))
	wants("mending it", 1, "Service shop/web [10.0.0.2]")
	w.api.Put(service("web", "10.0.0.x"))
	wants("breaking it anew", 2, "Service shop/web [10.0.0.2]")
	w.api.Delete(service("web", ""))
	wants("deleting it", 2)
	w.api.Put(service("web", "10.0.0.x"))
	wants("an object that was never good", 3)

	// It goes and comes while nobody listens.
	before := len(w.requests("services", 0))
	w.api.Misbehave(apitest.Fault{Status: 429, Resource: "services"})
	w.api.Cut()
	w.awaitRequests("services", before, 1)
	w.api.Delete(service("web", ""))
	w.api.Forget()
	w.api.Misbehave(apitest.Fault{})
	wants("its going unheard", 3)
	w.api.Put(service("web", "10.0.0.x"))
	wants("its coming back", 4)
}

// TestTriggerTimes checks that a change has the trigger time in its object's annotation,
// and that objects of a list have none.
func TestTriggerTimes(t *testing.T) {
	t.Parallel()
	caused := func(ip, at string) *discoveryv1.EndpointSlice {
		s := slice("web-1", ip)
		s.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: at}
		return s
	}
	at := time.Date(2026, 7, 1, 12, 0, 0, 5e6, time.UTC)
	for name, way := range ways {
		w := newWorld(t)
		w.api.Misbehave(way)
		w.api.Put(caused("10.1.0.1", at.Format(time.RFC3339Nano)))
		feed := w.store.Subscribe()
		w.live()
		web := cluster.Ref{Kind: cluster.KindService, Key: cluster.Key{Namespace: "shop", Name: "web"}}
		if got := feed.Pending(); !got.Everything || len(got.Objects) != 0 {
			t.Errorf("%s: changes of what was listed = %v, want everything, with no cause", name, got)
		}
		for i, test := range []struct {
			cause string
			want  int64
		}{
			{at.Format(time.RFC3339Nano), at.UnixNano()},
			{"yesterday", 0},
			{at.Truncate(time.Second).Format(time.RFC3339), at.Truncate(time.Second).UnixNano()},
		} {
			w.api.Put(caused(fmt.Sprintf("10.1.1.%d", i), test.cause))
			var got cluster.Changes
			w.await("a change", func() bool { got = feed.Pending(); return !got.Empty() })
			if diff := cmp.Diff(cluster.Changes{Objects: map[cluster.Ref]int64{web: test.want}}, got); diff != "" {
				t.Errorf("%s: changes of an event caused %q (-want +got):\n%s", name, test.cause, diff)
			}
		}
	}
}

// TestManyChanges checks that after thousands of changes, with watches that end and
// expire, the Store equals the server.
func TestManyChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.live()
	const objects = 2000
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range objects {
		name, ip := fmt.Sprintf("x-%d", i), fmt.Sprintf("10.2.%d.%d", i/250, i%250)
		w.api.Put(service(name, ip))
		if i%4 == 0 {
			w.api.Put(pod(name, ip, corev1.PodRunning))
		}
		old := fmt.Sprintf("x-%d", rnd.IntN(i+1))
		if i%3 == 0 {
			w.api.Put(service(old, ip))
		} else {
			w.api.Delete(service(old, ""), pod(old, "", ""))
		}
		switch i {
		case objects / 2:
			w.api.Cut()
		case objects * 3 / 4:
			w.api.Forget()
			w.api.Cut()
		}
	}
	want := []string{"Namespace default"}
	for _, o := range w.api.Objects() {
		switch o := o.(type) {
		case *corev1.Service:
			want = append(want, fmt.Sprintf("Service %s/%s [%s]", o.Namespace, o.Name, o.Spec.ClusterIP))
		case *corev1.Pod:
			want = append(want, fmt.Sprintf("Pod %s/%s [%s]", o.Namespace, o.Name, o.Status.PodIP))
		}
	}
	if len(want) < objects/4 {
		t.Fatalf("%d objects are left, too few for a test", len(want))
	}
	w.awaitModel("the storm", want...)
}
