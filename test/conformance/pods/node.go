//go:build linux

package pods

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// Config describes a node.
type Config struct {
	Client kubernetes.Interface
	// Dir gets the files of Pods, and logs. It exists.
	Dir string
	// Programs are the files to run, by the names of images without registry and tag.
	Programs map[string]string
	// Range has the addresses of Pods, which are used once each.
	Range netip.Prefix
	Log   *slog.Logger
}

// name is that of the Node.
const name = "node"

// Node runs all Pods of an API server.
type Node struct {
	config Config
	queue  workqueue.TypedRateLimitingInterface[types.NamespacedName]
	lister corelisters.PodLister
	pods   map[types.NamespacedName]*pod
	made   int        // Pods started ever
	last   netip.Addr // the latest address of a Pod
}

// New returns a node that runs no Pods yet.
func New(c Config) *Node {
	const soon, late = 20 * time.Millisecond, time.Second
	return &Node{
		config: c,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](soon, late)),
		pods: make(map[types.NamespacedName]*pod),
		last: c.Range.Masked().Addr().Next(), // the first one stays free
	}
}

// Run creates the Node and runs Pods until ctx is done. Then it ends their processes.
func (n *Node) Run(ctx context.Context) error {
	logs := n.serveLogs()
	defer logs.Close()
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	var err error
	if object.Status, err = status(logs.Listener.Addr()); err != nil {
		return fmt.Errorf("node: %w", err)
	}
	if _, err := n.config.Client.CoreV1().Nodes().Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("node: %w", err)
	}
	factory := informers.NewSharedInformerFactory(n.config.Client, 0)
	informer := factory.Core().V1().Pods()
	n.lister = informer.Lister()
	if _, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    n.changed,
		UpdateFunc: func(_, to any) { n.changed(to) },
		DeleteFunc: n.changed,
	}); err != nil {
		return fmt.Errorf("node: %w", err)
	}
	factory.StartWithContext(ctx)
	defer factory.Shutdown()
	stop := context.AfterFunc(ctx, n.queue.ShutDown)
	defer stop()
	for n.next(ctx) {
	}
	var errs []error
	for key := range n.pods {
		errs = append(errs, n.end(key))
	}
	return errors.Join(errs...)
}

func (n *Node) changed(object any) {
	if key, err := cache.DeletionHandlingObjectToName(object); err == nil {
		n.queue.Add(types.NamespacedName(key))
	}
}

// next handles a Pod that changed, or one that was not ready before. It returns false when the queue is shut down.
func (n *Node) next(ctx context.Context) bool {
	key, shutdown := n.queue.Get()
	if shutdown {
		return false
	}
	defer n.queue.Done(key)
	switch err := n.sync(ctx, key); {
	case err == nil:
		n.queue.Forget(key)
	case ctx.Err() == nil:
		n.config.Log.Debug("a Pod is not ready", "pod", key, "err", err)
		n.queue.AddRateLimited(key)
	}
	return true
}

// sync takes one step, or all, from what there is of a Pod to what its object describes.
func (n *Node) sync(ctx context.Context, key types.NamespacedName) error {
	object, err := n.lister.Pods(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return n.end(key)
	}
	if err != nil {
		return err
	}
	if p := n.pods[key]; p != nil && p.object.UID != object.UID {
		return errors.Join(n.end(key), errors.New("it replaces another"))
	}
	pods := n.config.Client.CoreV1().Pods(key.Namespace)
	switch {
	case object.DeletionTimestamp != nil:
		now := metav1.DeleteOptions{
			GracePeriodSeconds: new(int64), Preconditions: metav1.NewUIDPreconditions(string(object.UID)),
		}
		return errors.Join(n.end(key), ignoreNotFound(pods.Delete(ctx, key.Name, now)))
	case object.Spec.NodeName == "":
		return pods.Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: key.Name, Namespace: key.Namespace, UID: object.UID},
			Target:     corev1.ObjectReference{Kind: "Node", Name: name},
		}, metav1.CreateOptions{})
	}
	return n.run(ctx, object)
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// run starts the process of a Pod unless it runs, and writes its status once it listens.
func (n *Node) run(ctx context.Context, object *corev1.Pod) error {
	key := types.NamespacedName{Namespace: object.Namespace, Name: object.Name}
	p := n.pods[key]
	if p == nil {
		var err error
		if p, err = n.start(ctx, object); err != nil {
			return err
		}
		n.pods[key] = p
	}
	if err := p.check(); err != nil {
		return err
	}
	if isReady(object) {
		return nil
	}
	object = object.DeepCopy()
	object.Status = p.status()
	_, err := n.config.Client.CoreV1().Pods(key.Namespace).UpdateStatus(ctx, object, metav1.UpdateOptions{})
	return err
}

func isReady(object *corev1.Pod) bool {
	for _, c := range object.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// end ends the process of a Pod, if there is one.
func (n *Node) end(key types.NamespacedName) error {
	p, ok := n.pods[key]
	if !ok {
		return nil
	}
	delete(n.pods, key)
	return p.close()
}

// program is the file that an image stands for, which may have a registry and a tag.
func (n *Node) program(image string) (string, error) {
	base, _, _ := strings.Cut(path.Base(image), ":")
	file, ok := n.config.Programs[base]
	if !ok {
		return "", fmt.Errorf("no image %s", base)
	}
	return file, nil
}
