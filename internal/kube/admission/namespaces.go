package admission

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
)

const (
	// namespaceTTL is how long a Namespace is cached.
	namespaceTTL = 3 * time.Second
	// maxNamespaces is the greatest number of cached Namespaces.
	maxNamespaces = 1000
)

// namespaceCache caches Namespaces for a moment: Pods are created in bursts, and a
// burst in one Namespace reads it once.
type namespaceCache struct {
	source  Namespaces
	reading singleflight.Group

	mu   sync.Mutex
	kept map[string]cachedNamespace
}

type cachedNamespace struct {
	*corev1.Namespace
	until time.Time
}

func newNamespaceCache(source Namespaces) *namespaceCache {
	return &namespaceCache{source: source, kept: make(map[string]cachedNamespace)}
}

// Namespace returns a Namespace as it was at most namespaceTTL ago. The caller must not
// change it. Errors are not cached.
func (k *namespaceCache) Namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	k.mu.Lock()
	kept, ok := k.kept[name]
	k.mu.Unlock()
	if ok && time.Now().Before(kept.until) {
		return kept.Namespace, nil
	}
	// The first caller may give up before the others.
	result := k.reading.DoChan(name, func() (any, error) {
		read, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTime)
		defer cancel()
		n, err := k.source.Namespace(read, name)
		if err == nil {
			k.insert(name, n)
		}
		return n, err
	})
	select {
	case r := <-result:
		n, _ := r.Val.(*corev1.Namespace)
		return n, r.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// insert caches a Namespace; a full cache is emptied first.
func (k *namespaceCache) insert(name string, n *corev1.Namespace) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.kept) >= maxNamespaces {
		clear(k.kept)
	}
	k.kept[name] = cachedNamespace{n, time.Now().Add(namespaceTTL)}
}
