package endpointslices

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"portolan.dev/portolan/internal/cluster"
)

// apiSlices holds the slices of the API that are labeled ManagedBy. A slice that
// loses the label counts as deleted, one that gets it as added.
type apiSlices struct {
	informers []cache.SharedIndexInformer // one per Namespace that is read
	log       *slog.Logger

	mu       sync.Mutex
	problems map[string]error // by Namespace; why it cannot be read
}

// byService is the name of the informers' index.
const byService = "service"

func newAPISlices(c *Controller) *apiSlices {
	a := &apiSlices{log: c.cfg.Log, problems: make(map[string]error)}
	namespaces := c.cfg.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	for _, ns := range namespaces {
		informer := a.newInformer(c.cfg.Reader, ns)
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(o any) { c.sliceChanged(o.(*discoveryv1.EndpointSlice)) },
			UpdateFunc: func(before, now any) {
				if old := before.(*discoveryv1.EndpointSlice); serviceOf(old) != serviceOf(now.(*discoveryv1.EndpointSlice)) {
					c.queueFor(old)
				}
				c.sliceChanged(now.(*discoveryv1.EndpointSlice))
			},
			DeleteFunc: func(o any) {
				if unknown, ok := o.(cache.DeletedFinalStateUnknown); ok {
					o = unknown.Obj
				}
				if s, ok := o.(*discoveryv1.EndpointSlice); ok {
					c.sliceDeleted(s)
				}
			},
		})
		must(err) // it fails only on a stopped informer
		a.informers = append(a.informers, informer)
	}
	return a
}

func (a *apiSlices) newInformer(client kubernetes.Interface, namespace string) cache.SharedIndexInformer {
	managed := labels.Set{discoveryv1.LabelManagedBy: ManagedBy}.String()
	of := client.DiscoveryV1().EndpointSlices(namespace)
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = managed
			return of.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = managed
			w, err := of.Watch(ctx, o)
			if err == nil { // a list came first, or the watch replaces it
				a.setProblem(namespace, nil)
			}
			return w, err
		},
	}
	informer := cache.NewSharedIndexInformerWithOptions(cache.ToListWatcherWithWatchListSemantics(source, client),
		&discoveryv1.EndpointSlice{}, cache.SharedIndexInformerOptions{
			Indexers: cache.Indexers{byService: func(o any) ([]string, error) {
				return []string{serviceOf(o.(*discoveryv1.EndpointSlice)).String()}, nil
			}},
		})
	// These fail only on a started informer.
	must(informer.SetTransform(func(o any) (any, error) {
		if s, ok := o.(*discoveryv1.EndpointSlice); ok {
			s.ManagedFields = nil
		}
		return o, nil
	}))
	must(informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		if isRoutine(err) {
			return
		}
		a.setProblem(namespace, fmt.Errorf("read endpointslices: %w", err))
	}))
	return informer
}

// isRoutine reports whether a watch that ended with err is merely started again: its
// connection was closed, or the API server dropped its resource version.
func isRoutine(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || apierrors.IsResourceExpired(err) ||
		apierrors.IsGone(err)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// run reads slices until ctx is done.
func (a *apiSlices) run(ctx context.Context) {
	var running sync.WaitGroup
	for _, i := range a.informers {
		running.Go(func() { i.RunWithContext(ctx) })
	}
	running.Wait()
}

func (a *apiSlices) synced() bool {
	for _, i := range a.informers {
		if !i.HasSynced() {
			return false
		}
	}
	return true
}

func (a *apiSlices) len() (n int) {
	for _, i := range a.informers {
		n += len(i.GetStore().ListKeys())
	}
	return n
}

// of returns the slices of a Service as last read, without those being deleted. The
// caller must not change them.
func (a *apiSlices) of(service cluster.Key) (all []*discoveryv1.EndpointSlice) {
	for _, i := range a.informers {
		objects, err := i.GetIndexer().ByIndex(byService, service.String())
		must(err) // the index exists
		for _, o := range objects {
			all = append(all, o.(*discoveryv1.EndpointSlice))
		}
	}
	return withoutDeleted(all)
}

// setProblem records why the slices of a Namespace cannot be read; nil if they can.
func (a *apiSlices) setProblem(namespace string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		delete(a.problems, namespace)
		return
	}
	if known := a.problems[namespace]; known == nil || known.Error() != err.Error() {
		a.log.Warn("cannot read the API, will retry", "err", err)
	}
	a.problems[namespace] = err
}

// problem returns that of the first Namespace that has one.
func (a *apiSlices) problem() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, namespace := range slices.Sorted(maps.Keys(a.problems)) {
		return a.problems[namespace]
	}
	return nil
}
