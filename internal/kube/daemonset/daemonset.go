// Package daemonset reports whether the DaemonSet of a process has been removed, as opposed to the Pod alone.
//
// A process may leave something on its node that must stay while its Pod is replaced, and must go with its
// DaemonSet: a CNI plugin without which Pods start without policies, and with which, but without an agent, none
// starts. The kubelet ends the process alike in both cases, with SIGTERM; the API server knows which it is.
//
//	start ── Find ──► DaemonSet is there, with the annotation
//	 end ── Removed ──► gone, being deleted, or without the annotation: true
//	                ──► there: false
//	                ──► no answer, or no right to read it: an error
package daemonset

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"portolan.dev/portolan/internal/kube/api"
	"portolan.dev/portolan/internal/support/retry"
)

// Config configures a DaemonSet.
type Config struct {
	// Client needs the right to get the DaemonSet.
	Client api.ClientConfig
	// Name is that of the DaemonSet, in the namespace of the Pod's service account.
	Name string
	// Annotation is one of the DaemonSet's Pod template, as long as its Pods leave something on their nodes. Its
	// value has no meaning. A DaemonSet without it counts as removed: its next Pods do something else.
	Annotation string
	Log        *slog.Logger
}

// DaemonSet is that of this process. Its methods are safe for concurrent use.
type DaemonSet struct {
	cfg    Config
	client func() (client, error)
	found  atomic.Bool
}

// client reads DaemonSets of a namespace.
type client struct {
	kubernetes.Interface
	namespace string
}

// New returns a DaemonSet. It makes a client when it is used for the first time.
func New(cfg Config) *DaemonSet {
	return &DaemonSet{cfg: cfg, client: sync.OnceValues(func() (client, error) {
		namespace, err := api.DefaultNamespace(cfg.Client.Kubeconfig, "")
		if err != nil {
			return client{}, err
		}
		c, err := api.NewClient(cfg.Client)
		return client{c, namespace}, err
	})}
}

// Find waits until the DaemonSet is found with its annotation, or ctx is done. It logs the first problem.
func (d *DaemonSet) Find(ctx context.Context) {
	var pause retry.Backoff
	for reported := false; ; reported = true {
		err := d.check(ctx)
		if err == nil {
			d.found.Store(true)
			return
		}
		if ctx.Err() != nil {
			return
		}
		if !reported {
			d.cfg.Log.Warn("what this process leaves on the node will stay there when its DaemonSet is removed", "err", err)
		}
		if !sleep(ctx, pause.Next()) {
			return
		}
	}
}

// check returns an error unless the DaemonSet is there with its annotation.
func (d *DaemonSet) check(ctx context.Context) error {
	there, err := d.get(ctx)
	if err == nil && !d.stays(there) {
		return fmt.Errorf("daemonset %s is being deleted, or its Pods lack the annotation %s", d.cfg.Name, d.cfg.Annotation)
	}
	return err
}

func (d *DaemonSet) get(ctx context.Context) (*appsv1.DaemonSet, error) {
	c, err := d.client()
	if err != nil {
		return nil, fmt.Errorf("daemonset %s: %w", d.cfg.Name, err)
	}
	there, err := c.AppsV1().DaemonSets(c.namespace).Get(ctx, d.cfg.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("daemonset %s/%s: %w", c.namespace, d.cfg.Name, err)
	}
	return there, nil
}

// stays reports whether later Pods of the DaemonSet use what is left on the node.
func (d *DaemonSet) stays(there *appsv1.DaemonSet) bool {
	_, annotated := there.Spec.Template.Annotations[d.cfg.Annotation]
	return annotated && there.DeletionTimestamp == nil
}

// attemptPause is the time between two questions of Removed, and refusals how many answers in a row that refuse
// one say that the right to ask is lost: a role that is replaced is gone for a moment.
const (
	attemptPause = 500 * time.Millisecond
	refusals     = 6
)

// Removed reports whether the DaemonSet, which Find has found, has been removed since. It asks until there is an
// answer, or ctx is done, which is an error. Without the right to read it any more the error is fs.ErrPermission:
// whoever deletes all objects deletes the account and its role at once, and the Pods later, but a role that is
// broken, or an outage of authentication, is no different. It is false if Find has not found the DaemonSet: then
// it cannot be told from one that never was.
func (d *DaemonSet) Removed(ctx context.Context) (bool, error) {
	if !d.found.Load() {
		return false, nil
	}
	for refused := 0; ; {
		there, err := d.get(ctx)
		switch {
		case err == nil:
			return !d.stays(there), nil
		case apierrors.IsNotFound(err):
			return true, nil
		case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
			if refused++; refused == refusals {
				return false, fmt.Errorf("%w: %w", fs.ErrPermission, err)
			}
		default:
			refused = 0
		}
		if !sleep(ctx, attemptPause) {
			return false, err
		}
	}
}

// sleep reports whether ctx was not done meanwhile.
func sleep(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
