package nodespec

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/events"
	"portolan.dev/portolan/internal/network/podcidr"
)

// writeNext writes the range of the next Node and reports whether there may be more.
func (c *Controller) writeNext(ctx context.Context) bool {
	name, ended := c.queue.Get()
	if ended {
		return false
	}
	defer c.queue.Done(name)
	if ctx.Err() != nil {
		return true
	}
	given, tell := c.pending(name)
	if tell {
		c.warn(ctx, name, "CIDRNotAvailable", "all ranges of controller.nodes.clusterCIDRs are taken: "+
			"delete Nodes that are not used, or give a larger range")
	}
	if len(given) == 0 {
		c.queue.Forget(name)
		return true
	}
	result, err := c.write(ctx, podcidr.Assignment{Node: name, CIDRs: given})
	switch {
	case err != nil && ctx.Err() != nil:
		return true // canceled
	case err == nil:
		c.queue.Forget(name)
	default:
		c.cfg.Log.Warn("range of pod addresses not written, will retry", "node", name, "ranges", texts(given), "err", err)
		if c.queue.NumRequeues(name) == 0 {
			c.warn(ctx, name, "CIDRAssignmentFailed", err.Error())
		}
		c.queue.AddRateLimited(name)
	}
	c.cfg.Wrote(result)
	return true
}

// pending returns what is to be written to a Node, and whether its owners have to be told that there is nothing.
func (c *Controller) pending(name string) (given []netip.Prefix, tell bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, tell = c.untold[name]
	delete(c.untold, name)
	given = c.alloc.Given(name)
	return given, tell && len(given) == 0
}

// write writes ranges to a Node. If the API has other ones, or no such Node, it notes that, which is no error.
func (c *Controller) write(ctx context.Context, a podcidr.Assignment) (Result, error) {
	all := texts(a.CIDRs)
	body, err := json.Marshal(map[string]any{"spec": map[string]any{"podCIDR": all[0], "podCIDRs": all}})
	if err != nil {
		return Failed, err
	}
	nodes := c.cfg.Client.CoreV1().Nodes()
	_, err = nodes.Patch(ctx, a.Node, types.StrategicMergePatchType, body, metav1.PatchOptions{})
	switch {
	case err == nil:
		return Written, nil
	case apierrors.IsNotFound(err):
		c.gone(a.Node)
		return Kept, nil
	case apierrors.IsInvalid(err), apierrors.IsConflict(err):
		node, problem := nodes.Get(ctx, a.Node, metav1.GetOptions{})
		if problem == nil && len(node.Spec.PodCIDRs) > 0 {
			c.keep(node, all)
			return Kept, nil
		}
	}
	return Failed, fmt.Errorf("podCIDRs of node %s: %w", a.Node, err)
}

// gone frees what was given to a Node that does not exist. If the model still has the Node, it will lose it.
func (c *Controller) gone(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	absent := false
	c.cfg.Store.View(func(v *cluster.View) { absent = v.Node(name) == nil })
	if absent {
		c.alloc.Forget(name)
		c.give()
	}
}

// keep notes that a Node has other ranges than those that were given to it.
func (c *Controller) keep(n *corev1.Node, given []string) {
	if slices.Equal(n.Spec.PodCIDRs, given) {
		return
	}
	c.cfg.Log.Info("the node has ranges of pod addresses, which stay", "node", n.Name, "ranges", n.Spec.PodCIDRs)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.alloc.Adopt(assignmentOf(n))
	c.give()
}

// warn writes an Event about a Node. Without it, ranges are given all the same.
func (c *Controller) warn(ctx context.Context, name, reason, note string) {
	err := c.cfg.Warn(ctx, events.Event{
		Object: nodeRef(name), Reason: reason, Action: "AllocatePodCIDRs", Note: note, Once: true,
	})
	if err != nil && ctx.Err() == nil {
		c.cfg.Log.Warn("event not written", "err", err)
	}
}

func texts(all []netip.Prefix) (made []string) {
	for _, p := range all {
		made = append(made, p.String())
	}
	return made
}
