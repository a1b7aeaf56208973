//go:build linux

package rolling

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"portolan.dev/portolan/test/upstream/traffic"
)

// Config describes a rolling update.
type Config struct {
	Client   kubernetes.Interface // of a cluster with the image "traffic"
	Replicas int
	// Grace is how long a Pod accepts connections after SIGTERM, in whole seconds. Then it ends
	// those that are open. With 0 it exits at once.
	Grace time.Duration
}

// Result is what came of a rolling update.
type Result struct {
	// Took is the time until all Pods were replaced and the old ones gone.
	Took time.Duration
	// Internal are the connections to the cluster IP, and External those to the node port.
	Internal, External traffic.Figures
	// Late are the Internal connections that were opened after the Pod that answered was a ready
	// endpoint no more: how long after it.
	Late []time.Duration
}

// Failed is how many connections failed.
func (r *Result) Failed() int {
	return r.Internal.New.Failed + r.Internal.Lasting.Failed + r.External.New.Failed + r.External.Lasting.Failed
}

// Failures are when and why the first connections of each client failed.
func (r *Result) Failures() []string {
	return slices.Concat(
		r.Internal.New.Failures, r.Internal.Lasting.Failures, r.External.New.Failures, r.External.Lasting.Failures,
	)
}

// patience is how long a step may take.
const patience = 10 * time.Minute

// Run makes what it needs in a namespace of its own, replaces the Pods, and removes the namespace.
// Before and after it, each Pod has answered.
func Run(ctx context.Context, config Config) (result *Result, err error) {
	r := &run{Config: config}
	defer func() {
		if err = errors.Join(err, r.remove(context.WithoutCancel(ctx))); err != nil {
			result, err = nil, fmt.Errorf("rolling update: %w", err)
		}
	}()
	if err := r.create(ctx); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	withdrawn, err := watch(ctx, r.Client, r.namespace)
	if err != nil {
		return nil, err
	}
	external, err := r.connect(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := r.awaitAnswers(ctx, external); err != nil {
		return nil, err
	}
	began := time.Now()
	if err := r.replace(ctx); err != nil {
		return nil, err
	}
	took := time.Since(began)
	figures, err := r.awaitAnswers(ctx, external)
	if err != nil {
		return nil, err
	}
	return &Result{
		Took: took, Internal: figures, External: external.Figures(), Late: withdrawn.late(figures.Answered),
	}, nil
}

// run is a rolling update.
type run struct {
	Config
	namespace string // empty before it is made
}

// create makes the objects, and waits until the Pods are ready.
func (r *run) create(ctx context.Context) error {
	namespace, err := r.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "rolling-"},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	r.namespace = namespace.Name
	for _, s := range []*corev1.Service{internalService(), externalService()} {
		if _, err := r.Client.CoreV1().Services(r.namespace).Create(ctx, s, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	if _, err := r.Client.AppsV1().Deployments(r.namespace).Create(ctx, r.servers(), metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := r.awaitServers(ctx); err != nil {
		return err
	}
	service, err := r.Client.CoreV1().Services(r.namespace).Get(ctx, internalName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	_, err = r.Client.AppsV1().DaemonSets(r.namespace).Create(ctx, clients(service), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return await(ctx, func() error {
		d, err := r.Client.AppsV1().DaemonSets(r.namespace).Get(ctx, clientName, metav1.GetOptions{})
		if err == nil && (d.Status.ObservedGeneration == 0 || d.Status.NumberReady < d.Status.DesiredNumberScheduled) {
			err = fmt.Errorf("%d of %d clients are ready", d.Status.NumberReady, d.Status.DesiredNumberScheduled)
		}
		return err
	})
}

// connect starts the client outside of the nodes, which runs until ctx is done.
func (r *run) connect(ctx context.Context) (*traffic.Client, error) {
	service, err := r.Client.CoreV1().Services(r.namespace).Get(ctx, externalName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	nodes, err := r.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	b := &balancer{port: service.Spec.Ports[0].NodePort, health: service.Spec.HealthCheckNodePort}
	for _, n := range nodes.Items {
		i := slices.IndexFunc(n.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Type == corev1.NodeInternalIP })
		if i < 0 {
			return nil, fmt.Errorf("node %s has no address", n.Name)
		}
		b.nodes = append(b.nodes, n.Status.Addresses[i].Address)
	}
	go b.run(ctx)
	c := &traffic.Client{Target: b.target}
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := c.Await(within); err != nil {
		return nil, err
	}
	go c.Run(ctx)
	return c, nil
}

// replace restarts the Deployment as kubectl rollout restart does, and waits until the old Pods
// are gone.
func (r *run) replace(ctx context.Context) error {
	patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":%q}}}}}`,
		time.Now().Format(time.RFC3339))
	if _, err := r.Client.AppsV1().Deployments(r.namespace).Patch(
		ctx, serverName, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{},
	); err != nil {
		return err
	}
	return r.awaitServers(ctx)
}

// awaitServers waits until all Pods are of the Deployment's template and ready, and others gone.
func (r *run) awaitServers(ctx context.Context) error {
	return await(ctx, func() error {
		d, err := r.Client.AppsV1().Deployments(r.namespace).Get(ctx, serverName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		pods, err := r.pods(ctx, serverName) // with those that end
		if err != nil {
			return err
		}
		want, s := int32(r.Replicas), d.Status
		if s.ObservedGeneration < d.Generation || s.UpdatedReplicas != want || s.AvailableReplicas != want ||
			len(pods) != r.Replicas {
			return fmt.Errorf("%d Pods, %d updated, %d available, want %d of all",
				len(pods), s.UpdatedReplicas, s.AvailableReplicas, want)
		}
		return nil
	})
}

// pods lists the Pods of a name.
func (r *run) pods(ctx context.Context, name string) ([]corev1.Pod, error) {
	list, err := r.Client.CoreV1().Pods(r.namespace).List(ctx, metav1.ListOptions{LabelSelector: label + "=" + name})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// awaitAnswers waits until each Pod of the Deployment has answered a client at the cluster IP, and
// all connections that were begun before have been answered or failed. It returns the figures of
// the clients at the cluster IP.
func (r *run) awaitAnswers(ctx context.Context, external *traffic.Client) (all traffic.Figures, err error) {
	begun := time.Now()
	pods, err := r.pods(ctx, serverName)
	if err != nil {
		return all, err
	}
	clients, err := r.pods(ctx, clientName)
	if err != nil {
		return all, err
	}
	err = await(ctx, func() error {
		all = traffic.Figures{}
		for _, c := range clients {
			f, err := figures(ctx, c.Status.PodIP)
			if err != nil {
				return fmt.Errorf("figures of %s: %w", c.Name, err)
			}
			all.Add(f)
		}
		for _, p := range pods {
			if len(all.Answered[p.Name]) == 0 {
				return fmt.Errorf("%s answers no client", p.Name)
			}
		}
		if all.Complete.Before(begun) || external.Figures().Complete.Before(begun) {
			return errors.New("a connection has neither an answer nor failed")
		}
		return nil
	})
	return all, err
}

// figures reads those of a client's Pod.
func figures(ctx context.Context, ip string) (f traffic.Figures, err error) {
	const patience = 20 * time.Second
	dialer := net.Dialer{Timeout: patience}
	conn, err := dialer.DialContext(ctx, "tcp", address(ip, port))
	if err != nil {
		return f, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return f, err
	}
	err = json.NewDecoder(conn).Decode(&f)
	return f, err
}

// await calls try every second until it returns nil, and returns its error when ctx is done or
// patience has ended.
func await(ctx context.Context, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-tick.C:
		}
	}
}

// remove deletes the namespace and waits until it is gone with its Pods.
func (r *run) remove(ctx context.Context) error {
	if r.namespace == "" {
		return nil
	}
	if err := r.Client.CoreV1().Namespaces().Delete(ctx, r.namespace, metav1.DeleteOptions{}); err != nil {
		return err
	}
	return await(ctx, func() error {
		_, err := r.Client.CoreV1().Namespaces().Get(ctx, r.namespace, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil:
			err = fmt.Errorf("namespace %s is there still", r.namespace)
		}
		return err
	})
}
