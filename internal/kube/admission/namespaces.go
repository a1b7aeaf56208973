package admission

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
)

const (
	// namespaceLife is for how long a Namespace is good that was read.
	namespaceLife = 3 * time.Second
	// namespacesKept is how many there are at most.
	namespacesKept = 1000
)

// keptNamespaces keeps Namespaces for a moment: Pods come in bursts, and those
// of one Namespace ask for it once.
type keptNamespaces struct {
	of      Namespaces
	reading singleflight.Group

	mu   sync.Mutex
	kept map[string]keptNamespace
}

type keptNamespace struct {
	*corev1.Namespace
	until time.Time
}

func newKeptNamespaces(of Namespaces) *keptNamespaces {
	return &keptNamespaces{of: of, kept: make(map[string]keptNamespace)}
}

// Namespace gives a Namespace as it was at most namespaceLife ago. It must not be
// changed. Failures are not kept.
func (k *keptNamespaces) Namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	k.mu.Lock()
	kept, ok := k.kept[name]
	k.mu.Unlock()
	if ok && time.Now().Before(kept.until) {
		return kept.Namespace, nil
	}
	// The first to ask may give up before the others.
	result := k.reading.DoChan(name, func() (any, error) {
		read, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTime)
		defer cancel()
		n, err := k.of.Namespace(read, name)
		if err == nil {
			k.keep(name, n)
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

// keep notes a Namespace; where there are too many, all others are forgotten.
func (k *keptNamespaces) keep(name string, n *corev1.Namespace) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.kept) >= namespacesKept {
		clear(k.kept)
	}
	k.kept[name] = keptNamespace{n, time.Now().Add(namespaceLife)}
}
