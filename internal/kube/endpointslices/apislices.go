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

// apiSlices are the slices of the API that are labelled ManagedBy. One that
// loses the label is gone, and one that gets it is new.
type apiSlices struct {
	informers []cache.SharedIndexInformer // one for each Namespace that is read
	log       *slog.Logger

	mu       sync.Mutex
	problems map[string]error // why a Namespace is not read, where it is not
}

// byService is the name of an index.
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
					c.sliceGone(s)
				}
			},
		})
		must(err) // only an informer that was stopped takes no handler
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
			if err == nil { // which a list went before, or which is one; be it empty
				a.setProblem(namespace, nil)
			}
			return w, err
		},
	}
	informer := cache.NewSharedIndexInformerWithOptions(cache.ToListWatcherWithWatchListSemantics(source, client), &discoveryv1.EndpointSlice{}, cache.SharedIndexInformerOptions{
		Indexers: cache.Indexers{byService: func(o any) ([]string, error) {
			return []string{serviceOf(o.(*discoveryv1.EndpointSlice)).String()}, nil
		}},
	})
	// These fail for informers that were started only.
	must(informer.SetTransform(func(o any) (any, error) {
		if s, ok := o.(*discoveryv1.EndpointSlice); ok {
			s.ManagedFields = nil
		}
		return o, nil
	}))
	must(informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		if passes(err) {
			return
		}
		a.setProblem(namespace, fmt.Errorf("read endpointslices: %w", err))
	}))
	return informer
}

// passes tells whether a watch that ends so is only begun again: its connection
// was closed, or the API server has forgotten what was before.
func passes(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// run reads until ctx is done.
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

// of are the slices of a Service, as far as they are told. They are not to be
// changed.
func (a *apiSlices) of(service cluster.Key) (all []*discoveryv1.EndpointSlice) {
	for _, i := range a.informers {
		objects, err := i.GetIndexer().ByIndex(byService, service.String())
		must(err) // the index is there
		for _, o := range objects {
			all = append(all, o.(*discoveryv1.EndpointSlice))
		}
	}
	return withoutDeleted(all)
}

// setProblem notes why the slices of a Namespace can't be read; nil: they can.
func (a *apiSlices) setProblem(namespace string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		delete(a.problems, namespace)
		return
	}
	if known := a.problems[namespace]; known == nil || known.Error() != err.Error() {
		a.log.Warn("api can't be read; tried again", "err", err)
	}
	a.problems[namespace] = err
}

// problem is that of the first Namespace that has one.
func (a *apiSlices) problem() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, namespace := range slices.Sorted(maps.Keys(a.problems)) {
		return a.problems[namespace]
	}
	return nil
}
