// Package loadbalancer writes the addresses of Services of type LoadBalancer into their statuses (Kubernetes API
// reference, LoadBalancerStatus; KEP-1860, ipMode), as package pool assigns them, and tells owners of Services.
//
//	cluster.Store ──► absorb ──► pool.Assigner ──► queue ──► sync ──► PATCH of the subresource status, Events
//	API: all Services ──► begin ────▲
//
// What was assigned is in the statuses alone. Before the first address is assigned, all Services are read from the API,
// since the model may lag behind what another process wrote before this one led.
package loadbalancer

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/events"
	"portolan.dev/portolan/internal/network/pool"
	"portolan.dev/portolan/internal/support/retry"
)

// Result is the outcome of an attempt to write a status.
type Result string

// The results. Repaired: somebody else had changed the status.
const (
	Written  Result = "written"
	Repaired Result = "repaired"
	Failed   Result = "failed"
)

// Config configures a Controller.
type Config struct {
	// Store is the model, with the kinds of Needs. A source fills it.
	Store *cluster.Store
	// Client lists Services and patches their statuses; its requests must have a timeout.
	Client kubernetes.Interface
	// Pool is valid (pool.Config.Check).
	Pool pool.Config
	// Writes is the number of Services that are written at once.
	Writes int
	// Tell writes an Event.
	Tell func(context.Context, events.Event) error
	// Wrote is called after each attempt.
	Wrote func(Result)
	Log   *slog.Logger
}

// Controller gives addresses to the Services of a cluster. Of several processes, only one may work.
type Controller struct {
	cfg   Config
	queue workqueue.TypedRateLimitingInterface[cluster.Key]

	mu       sync.Mutex // guards the fields below
	assigner *pool.Assigner
	states   map[cluster.Key]*state
}

// state is what was done for a Service.
type state struct {
	wrote   []netip.Addr // last; nil if nothing was written
	repairs retry.Repairs
	due     time.Time // when the next repair is; zero if none is needed
	told    string    // the problem that the owners were told of
}

// New returns a Controller.
func New(cfg Config) *Controller {
	return &Controller{
		cfg: cfg, assigner: pool.NewAssigner(cfg.Pool), states: make(map[cluster.Key]*state),
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[cluster.Key](retry.FirstPause, retry.LongestPause)),
	}
}

// Needs returns the kinds of the model that addresses depend on.
func Needs() []cluster.Kind { return slices.Clone(needs) }

var needs = []cluster.Kind{cluster.KindNamespace, cluster.KindService}

// Missing returns, in words, which kinds have not been read completely yet.
func (c *Controller) Missing() (missing []string) {
	c.cfg.Store.View(func(v *cluster.View) { missing = v.Unread(needs...) })
	return missing
}

// Usage returns the usage of the pools, and the number of Services that lack an address. It is that of this process
// while it works.
func (c *Controller) Usage() (usage []pool.Usage, lacking int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.assigner.Usage()
}

// Work waits until everything is read, then assigns addresses until ctx is done, and returns ctx's error. It cancels
// requests in flight. It may be called once.
func (c *Controller) Work(ctx context.Context) error {
	feed := c.cfg.Store.Subscribe()
	defer feed.Close()
	if err := c.begin(ctx, feed); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, c.queue.ShutDown)()
	var writing sync.WaitGroup
	defer writing.Wait()
	for range c.cfg.Writes {
		writing.Go(func() {
			for c.syncNext(ctx) {
			}
		})
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-feed.Ready():
			c.mu.Lock()
			c.cfg.Store.View(func(v *cluster.View) { c.absorb(v, feed.Pending()) })
			c.mu.Unlock()
		}
	}
}

// begin reads all Services, from the model and from the API.
func (c *Controller) begin(ctx context.Context, feed *cluster.Feed) error {
	for len(c.Missing()) > 0 {
		if _, err := feed.Next(ctx); err != nil {
			return err
		}
	}
	feed.Pending()
	var has map[cluster.Key][]netip.Addr
	list := func() (err error) {
		has, err = c.list(ctx)
		return err
	}
	err := retry.Until(ctx, list, func(err error) {
		c.cfg.Log.Warn("services not listed, will retry; no addresses are assigned meanwhile", "err", err)
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cfg.Store.View(func(v *cluster.View) {
		changes := feed.Pending()
		for key, addrs := range has {
			_, changed := changes.Objects[cluster.Ref{Kind: cluster.KindService, Key: key}]
			if changed && v.Service(key) == nil {
				continue // it was deleted after it was listed
			}
			c.assigner.Adopt(key, addrs)
		}
		c.absorb(v, cluster.Changes{Everything: true})
	})
	return nil
}

// absorb applies changes of the model, and queues the Services that they matter to.
func (c *Controller) absorb(v *cluster.View, changes cluster.Changes) {
	for key := range c.assigner.Update(v, changes) {
		c.queue.Add(key)
	}
}

// pageSize is how many Services are listed at once.
const pageSize = 500

// list returns the addresses of the Services of the API that have some.
func (c *Controller) list(ctx context.Context) (map[cluster.Key][]netip.Addr, error) {
	has := make(map[cluster.Key][]netip.Addr)
	for page := (metav1.ListOptions{Limit: pageSize}); ; {
		services, err := c.cfg.Client.CoreV1().Services(metav1.NamespaceAll).List(ctx, page)
		if err != nil {
			return nil, fmt.Errorf("list services: %w", err)
		}
		for i := range services.Items {
			s := &services.Items[i]
			if addrs := addressesOf(s); len(addrs) > 0 {
				has[cluster.Key{Namespace: s.Namespace, Name: s.Name}] = addrs
			}
		}
		if page.Continue = services.Continue; page.Continue == "" {
			return has, nil
		}
	}
}

// addressesOf returns the addresses in the status of a Service of type LoadBalancer.
func addressesOf(s *corev1.Service) (addrs []netip.Addr) {
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return nil
	}
	for i := range s.Status.LoadBalancer.Ingress {
		if addr, err := netip.ParseAddr(s.Status.LoadBalancer.Ingress[i].IP); err == nil {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}
