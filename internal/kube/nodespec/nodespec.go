// Package nodespec writes the ranges of Pod addresses of Nodes that have none, spec.podCIDR and spec.podCIDRs
// (Kubernetes API reference, NodeSpec), as package podcidr gives them.
//
//	cluster.Store ──► absorb ──► podcidr.Allocator ──► queue ──► write ──► PATCH of a Node
//	API: all Nodes ──► begin ────────▲
//
// A range that is set cannot be changed. What the API has holds: before the first range is given, all Nodes are
// read from it, since the model may lag behind what another process wrote before this one led; and when it refuses a
// range, the Node is read again.
package nodespec

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/events"
	"portolan.dev/portolan/internal/network/podcidr"
	"portolan.dev/portolan/internal/support/retry"
)

// Result is the outcome of an attempt to write the range of a Node.
type Result string

// The results. Kept: the API had another range for the Node, which stays.
const (
	Written Result = "written"
	Kept    Result = "kept"
	Failed  Result = "failed"
)

// Config configures a Controller.
type Config struct {
	// Store is the model, with the kinds of Needs. A source fills it.
	Store *cluster.Store
	// Client lists, gets and patches Nodes; its requests must have a timeout.
	Client kubernetes.Interface
	// Ranges are valid (podcidr.CheckRanges).
	Ranges []podcidr.Range
	// Writes is the number of Nodes that are written at once.
	Writes int
	// Warn writes an Event.
	Warn func(context.Context, events.Event) error
	// Wrote is called after each attempt.
	Wrote func(Result)
	Log   *slog.Logger
}

// Controller gives ranges to the Nodes of a cluster. Of several processes, only one may work.
type Controller struct {
	cfg   Config
	queue workqueue.TypedRateLimitingInterface[string]

	mu    sync.Mutex // guards the fields below
	alloc *podcidr.Allocator
	// untold are Nodes without a range whose owners were not told.
	untold map[string]struct{}
}

// New returns a Controller.
func New(cfg Config) *Controller {
	return &Controller{
		cfg: cfg, alloc: podcidr.NewAllocator(cfg.Ranges), untold: make(map[string]struct{}),
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](retry.FirstPause, retry.LongestPause)),
	}
}

// Needs returns the kinds of the model that ranges depend on.
func Needs() []cluster.Kind { return slices.Clone(needs) }

var needs = []cluster.Kind{cluster.KindNode, cluster.KindServiceCIDR}

// Missing returns, in words, which kinds have not been read completely yet.
func (c *Controller) Missing() (missing []string) {
	c.cfg.Store.View(func(v *cluster.View) { missing = v.Unread(needs...) })
	return missing
}

// Usage returns how many ranges of each family are free and taken, and the number of Nodes for which there is none. It
// is that of this process while it works.
func (c *Controller) Usage() (usage []podcidr.Usage, waiting int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.alloc.Usage(), c.alloc.Waiting()
}

// Work waits until everything is read, then gives ranges until ctx is done, and returns ctx's error. It cancels
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
			for c.writeNext(ctx) {
			}
		})
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-feed.Ready():
			c.absorb(feed)
		}
	}
}

// begin reads all Nodes, from the model and from the API.
func (c *Controller) begin(ctx context.Context, feed *cluster.Feed) error {
	for len(c.Missing()) > 0 {
		if _, err := feed.Next(ctx); err != nil {
			return err
		}
	}
	feed.Pending()
	var given []podcidr.Assignment
	list := func() (err error) {
		given, err = c.list(ctx)
		return err
	}
	err := retry.Until(ctx, list, func(err error) {
		c.cfg.Log.Warn("nodes not listed, will retry; no ranges are given meanwhile", "err", err)
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cfg.Store.View(func(v *cluster.View) {
		changes := feed.Pending()
		c.alloc.Update(v, cluster.Changes{Everything: true})
		for _, g := range given {
			_, changed := changes.Objects[nodeRef(g.Node)]
			if changed && v.Node(g.Node) == nil {
				continue // it was deleted after it was listed
			}
			c.alloc.Adopt(g)
			c.enqueue(g.Node)
		}
	})
	c.give()
	return nil
}

func nodeRef(name string) cluster.Ref {
	return cluster.Ref{Kind: cluster.KindNode, Key: cluster.Key{Name: name}}
}

// absorb applies the changes of the model, and gives ranges to Nodes that are without.
func (c *Controller) absorb(feed *cluster.Feed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cfg.Store.View(func(v *cluster.View) {
		changes := feed.Pending()
		c.alloc.Update(v, changes)
		for ref := range changes.Objects {
			// A Node that changed and still has no range may be one that was deleted and made again since.
			if ref.Kind == cluster.KindNode {
				c.enqueue(ref.Key.Name)
			}
		}
	})
	c.give()
}

// enqueue has what was given to a Node written, if the model does not show it.
func (c *Controller) enqueue(name string) {
	if len(c.alloc.Given(name)) > 0 {
		c.queue.Add(name)
	}
}

// give gives ranges, and queues who gets them and who gets none.
func (c *Controller) give() {
	given, missing := c.alloc.Give()
	for _, g := range given {
		delete(c.untold, g.Node)
		c.queue.Add(g.Node)
	}
	for _, name := range missing {
		c.untold[name] = struct{}{}
		c.queue.Add(name)
	}
}

// pageSize is how many Nodes are listed at once. A Node has about 10 KiB.
const pageSize = 500

// list returns the ranges that Nodes have in the API.
func (c *Controller) list(ctx context.Context) (given []podcidr.Assignment, err error) {
	for page := (metav1.ListOptions{Limit: pageSize}); ; {
		nodes, err := c.cfg.Client.CoreV1().Nodes().List(ctx, page)
		if err != nil {
			return nil, fmt.Errorf("list nodes: %w", err)
		}
		for i := range nodes.Items {
			if g := assignmentOf(&nodes.Items[i]); len(g.CIDRs) > 0 {
				given = append(given, g)
			}
		}
		if page.Continue = nodes.Continue; page.Continue == "" {
			return given, nil
		}
	}
}

// assignmentOf returns the ranges that a Node has.
func assignmentOf(n *corev1.Node) podcidr.Assignment {
	a := podcidr.Assignment{Node: n.Name}
	for _, text := range n.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			a.CIDRs = append(a.CIDRs, p.Masked())
		}
	}
	return a
}
