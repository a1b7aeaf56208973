package endpointslices

import (
	"cmp"
	"log/slog"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/object"
)

// worker does jobs, one after the other.
type worker struct {
	compiler   *Compiler
	client     *memory
	reconciler *Reconciler
	yes, no    *bool // what conditions point to
}

func newWorker(c *Compiler) *worker {
	yes, no := true, false
	w := &worker{compiler: c, client: &memory{}, yes: &yes, no: &no}
	w.client.take = w.take
	w.reconciler = NewReconciler(ReconcilerConfig{
		Client: w.client, Nodes: c.nodes, MaxEndpoints: c.cfg.MaxEndpoints, Events: events{c.cfg.Log},
	})
	return w
}

// do does a job.
func (w *worker) do(j *job) {
	switch {
	case j.now == nil:
	case w.change(j):
		w.convertChanged(j)
	default:
		w.renew(j)
		w.convert(j)
	}
}

// renew makes all slices of a Service.
func (w *worker) renew(j *job) {
	existing := j.existing()
	pods := w.compiler.index.Pods(j.key)
	for i, p := range pods {
		pods[i] = w.sound(j, p)
	}
	j.plain = plainnessOf(j.now, pods)
	if len(existing) > 0 || j.plain == nil || !w.begin(j, pods) {
		w.reconcile(j, existing, pods)
	}
	j.written = slices.DeleteFunc(slices.Clone(j.slices), func(s *discoveryv1.EndpointSlice) bool { return slices.Contains(existing, s) })
	deal(existing, j.written)
	j.name()
}

// reconcile does a job by the library.
func (w *worker) reconcile(j *job, existing []*discoveryv1.EndpointSlice, pods []*cluster.Pod) {
	w.client.begin(existing)
	err := w.reconciler.Reconcile(Request{Service: j.now, Pods: pods, Existing: existing})
	w.reconciler.forgetFigures(j.key) // which nobody asks for
	if err != nil {
		w.compiler.cfg.Log.Debug("endpoints were left out", "service", j.key, "err", err)
	}
	j.slices = slices.Concat(w.client.kept, w.client.created)
}

// convert makes the model's slices of those that were written. One that is
// refused has something wrong with its Service, and is left out.
func (w *worker) convert(j *job) {
	for _, s := range j.written {
		m, errs := object.EndpointSlice(s)
		if err := errs.ToAggregate(); err != nil {
			w.compiler.cfg.Log.Error("a slice is no valid one", "service", j.key, "slice", s.Name, "err", err)
			j.slices = slices.DeleteFunc(j.slices, func(other *discoveryv1.EndpointSlice) bool { return other == s })
			continue
		}
		j.model = append(j.model, m)
	}
}

// take makes a slice of the library's one that is kept: what points into scratch
// objects, or has the same few values everywhere, points elsewhere.
func (w *worker) take(s *discoveryv1.EndpointSlice) {
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		e.NodeName = w.nodeName(e.NodeName)
		if e.Hostname != nil {
			hostname := *e.Hostname
			e.Hostname = &hostname
		}
		e.Conditions.Ready = w.truth(*e.Conditions.Ready)
		e.Conditions.Serving = w.truth(*e.Conditions.Serving)
		e.Conditions.Terminating = w.truth(*e.Conditions.Terminating)
	}
	slices.SortFunc(s.Endpoints, compareEndpoints)
}

func (w *worker) truth(is bool) *bool {
	if is {
		return w.yes
	}
	return w.no
}

func (w *worker) nodeName(name *string) *string {
	if name == nil {
		return nil
	}
	if node := (*w.compiler.nodes.present.Load())[*name]; node != nil {
		return &node.Name
	}
	kept := *name
	return &kept
}

// compareEndpoints orders the endpoints of a slice: by Pod, of which each has one
// in its family.
func compareEndpoints(a, b discoveryv1.Endpoint) int {
	return cmp.Compare(a.TargetRef.Name, b.TargetRef.Name)
}

// events tells the log what a recorder would tell the cluster.
type events struct{ log *slog.Logger }

func (e events) Event(object runtime.Object, _, reason, message string) {
	if s, ok := object.(*corev1.Service); ok {
		e.log.Debug("topology hints", "service", s.Namespace+"/"+s.Name, "reason", reason, "message", message)
	}
}

func (e events) Eventf(runtime.Object, string, string, string, ...any) {}

func (e events) AnnotatedEventf(runtime.Object, map[string]string, string, string, string, ...any) {}
