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

// worker executes jobs, one at a time.
type worker struct {
	compiler   *Compiler
	client     *memory
	reconciler *Reconciler
	yes, no    *bool // shared by the conditions of all endpoints
}

func newWorker(c *Compiler) *worker {
	yes, no := true, false
	w := &worker{compiler: c, client: &memory{}, yes: &yes, no: &no}
	w.client.detach = w.detach
	w.reconciler = NewReconciler(ReconcilerConfig{
		Client: w.client, Nodes: c.nodes, MaxEndpoints: c.cfg.MaxEndpoints, Events: events{c.cfg.Log},
	})
	return w
}

// do executes a job: the library writes the Service's slices to memory, then they
// get names and are converted to objects of the model.
func (w *worker) do(j *job) {
	if j.service == nil {
		return
	}
	existing := j.existing()
	pods := w.compiler.index.Pods(j.key)
	for i, p := range pods {
		pods[i] = w.representable(j, p)
	}
	w.reconcile(j, existing, pods)
	j.written = slices.DeleteFunc(slices.Clone(j.slices), func(s *discoveryv1.EndpointSlice) bool {
		return slices.Contains(existing, s)
	})
	distribute(existing, j.written)
	j.name()
	w.convert(j)
}

// reconcile has the library update the slices of the job's Service.
func (w *worker) reconcile(j *job, existing []*discoveryv1.EndpointSlice, pods []*cluster.Pod) {
	w.client.reset(existing)
	err := w.reconciler.Reconcile(Request{Service: j.service, Pods: pods, Existing: existing})
	w.reconciler.forgetMetrics(j.key)
	if err != nil {
		w.compiler.cfg.Log.Debug("endpoints omitted", "service", j.key, "err", err)
	}
	j.slices = slices.Concat(w.client.existing, w.client.created)
}

// convert converts the slices that were written to objects of the model. A slice
// that the model refuses comes from a malformed Service and is dropped.
func (w *worker) convert(j *job) {
	for _, s := range j.written {
		m, errs := object.EndpointSlice(s)
		if err := errs.ToAggregate(); err != nil {
			w.compiler.cfg.Log.Error("generated slice is invalid", "service", j.key, "slice", s.Name, "err", err)
			j.slices = slices.DeleteFunc(j.slices, func(other *discoveryv1.EndpointSlice) bool { return other == s })
			continue
		}
		j.model = append(j.model, m)
	}
}

// detach prepares a slice that the library wrote for keeping: it replaces pointers
// into scratch objects, shares values that most endpoints have in common, and sorts
// the endpoints.
func (w *worker) detach(s *discoveryv1.EndpointSlice) {
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		e.NodeName = w.nodeName(e.NodeName)
		if e.Hostname != nil {
			hostname := *e.Hostname
			e.Hostname = &hostname
		}
		e.Conditions.Ready = w.shared(*e.Conditions.Ready)
		e.Conditions.Serving = w.shared(*e.Conditions.Serving)
		e.Conditions.Terminating = w.shared(*e.Conditions.Terminating)
	}
	slices.SortFunc(s.Endpoints, compareEndpoints)
}

// shared returns a pointer to b that all endpoints share.
func (w *worker) shared(b bool) *bool {
	if b {
		return w.yes
	}
	return w.no
}

// nodeName returns a pointer to the same name that outlives the scratch Pod; it is
// the Node's own where the Node is known.
func (w *worker) nodeName(name *string) *string {
	if name == nil {
		return nil
	}
	if node := (*w.compiler.nodes.present.Load())[*name]; node != nil {
		return &node.Name
	}
	copied := *name
	return &copied
}

// compareEndpoints orders the endpoints of a slice by Pod. A Pod has one endpoint
// per address family.
func compareEndpoints(a, b discoveryv1.Endpoint) int {
	return cmp.Compare(a.TargetRef.Name, b.TargetRef.Name)
}

// events is a record.EventRecorder that logs events instead of writing them to the
// cluster.
type events struct{ log *slog.Logger }

func (e events) Event(object runtime.Object, _, reason, message string) {
	if s, ok := object.(*corev1.Service); ok {
		e.log.Debug("topology hints", "service", s.Namespace+"/"+s.Name, "reason", reason, "message", message)
	}
}

func (e events) Eventf(runtime.Object, string, string, string, ...any) {}

func (e events) AnnotatedEventf(runtime.Object, map[string]string, string, string, string, ...any) {}
