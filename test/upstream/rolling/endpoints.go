//go:build linux

package rolling

import (
	"context"
	"fmt"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// withdrawals are when Pods ceased to be ready endpoints, by their names. Proxies learn of it at
// about the same time.
type withdrawals struct {
	mu    sync.Mutex
	times map[string]time.Time
}

// watch notes the withdrawals from the cluster IP's EndpointSlices in a namespace until ctx is
// done.
func watch(ctx context.Context, client kubernetes.Interface, namespace string) (*withdrawals, error) {
	w := &withdrawals{times: map[string]time.Time{}}
	informer := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.LabelSelector = discoveryv1.LabelServiceName + "=" + internalName
		}),
	).Discovery().V1().EndpointSlices().Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) { w.note(ready(before), ready(after), time.Now()) },
	}); err != nil {
		return nil, err
	}
	go informer.Run(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil, fmt.Errorf("list EndpointSlices: %w", ctx.Err())
	}
	return w, nil
}

// ready returns the names of Pods that are ready endpoints of an EndpointSlice.
func ready(slice any) map[string]bool {
	names := map[string]bool{}
	if slice, ok := slice.(*discoveryv1.EndpointSlice); ok {
		for _, e := range slice.Endpoints {
			if e.TargetRef != nil && (e.Conditions.Ready == nil || *e.Conditions.Ready) {
				names[e.TargetRef.Name] = true
			}
		}
	}
	return names
}

// note notes which Pods are ready no more.
func (w *withdrawals) note(before, after map[string]bool, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name := range before {
		if _, noted := w.times[name]; !noted && !after[name] {
			w.times[name] = now
		}
	}
}

// late returns how long after the withdrawal of their Pods connections were opened, of those that
// were.
func (w *withdrawals) late(answered map[string][]time.Time) []time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []time.Duration
	for name, opened := range answered {
		for _, at := range opened {
			if since := at.Sub(w.times[name]); !w.times[name].IsZero() && since > 0 {
				all = append(all, since)
			}
		}
	}
	return all
}
