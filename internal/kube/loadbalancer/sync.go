package loadbalancer

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/events"
	"portolan.dev/portolan/internal/network/pool"
)

// job is what is to be done for a Service.
type job struct {
	addrs  []netip.Addr // that its status has to have
	write  bool
	result Result // if the write succeeds
	tell   string // the problem that the owners have to be told of; empty for none
}

// syncNext writes the status of the next Service and reports whether there may be more.
func (c *Controller) syncNext(ctx context.Context) bool {
	key, ended := c.queue.Get()
	if ended {
		return false
	}
	defer c.queue.Done(key)
	if ctx.Err() != nil {
		return true
	}
	j := c.next(key, time.Now())
	if j.tell != "" {
		c.tell(ctx, key, events.Event{Reason: "AllocationFailed", Note: j.tell})
	}
	if !j.write {
		c.queue.Forget(key)
		return true
	}
	err := c.patch(ctx, key, j.addrs)
	switch {
	case err != nil && ctx.Err() != nil:
		return true // canceled
	case err == nil:
		c.queue.Forget(key)
		c.written(ctx, key, j)
	default:
		j.result = Failed
		c.cfg.Log.Warn("status of service not written, will retry", "service", key, "err", err)
		c.queue.AddRateLimited(key)
	}
	c.cfg.Wrote(j.result)
	return true
}

// next returns what is to be done for a Service now. A repair is due after a pause, for which it queues the Service.
func (c *Controller) next(key cluster.Key, now time.Time) (j job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var service *cluster.Service
	var of pool.Assignment
	c.cfg.Store.View(func(v *cluster.View) {
		if service = v.Service(key); service != nil {
			of = c.assigner.Of(service)
		}
	})
	if service == nil || !of.Ours && !of.Left {
		delete(c.states, key)
		return job{}
	}
	s := c.states[key]
	if s == nil {
		s = &state{}
		c.states[key] = s
	}
	if of.Problem != s.told {
		s.told, j.tell = of.Problem, of.Problem
	}
	if shows(service, of.Addrs) {
		if s.note(of.Addrs); of.Left {
			c.assigner.Cleared(key)
			delete(c.states, key)
		}
		return j
	}
	j.addrs, j.write, j.result = of.Addrs, true, Written
	if s.wrote == nil || !slices.Equal(s.wrote, of.Addrs) {
		return j
	}
	j.result = Repaired
	if s.due.IsZero() {
		pause, _ := s.repairs.Next(now)
		s.due = now.Add(pause)
		c.queue.AddAfter(key, pause)
	}
	j.write = !now.Before(s.due)
	return j
}

// note notes what the status has.
func (s *state) note(addrs []netip.Addr) {
	s.wrote, s.due = append([]netip.Addr{}, addrs...), time.Time{}
}

// shows reports whether the status of a Service has these addresses, and nothing else.
func shows(s *cluster.Service, addrs []netip.Addr) bool {
	if s.External != nil && len(s.External.Targets) > 0 {
		return false
	}
	return slices.EqualFunc(s.Spec.Ingress, addrs, func(ip cluster.IngressIP, addr netip.Addr) bool {
		return ip.Addr == addr && !ip.Proxy
	})
}

// patch writes the status of a Service. A Service that is gone needs none.
func (c *Controller) patch(ctx context.Context, key cluster.Key, addrs []netip.Addr) error {
	mode := corev1.LoadBalancerIPModeVIP
	var ingress []corev1.LoadBalancerIngress // null removes it
	for _, addr := range addrs {
		ingress = append(ingress, corev1.LoadBalancerIngress{IP: addr.String(), IPMode: &mode})
	}
	body, err := json.Marshal(map[string]any{"status": map[string]any{"loadBalancer": map[string]any{"ingress": ingress}}})
	if err != nil {
		return err
	}
	services := c.cfg.Client.CoreV1().Services(key.Namespace)
	_, err = services.Patch(ctx, key.Name, types.MergePatchType, body, metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("status of service %s: %w", key, err)
	}
	return nil
}

// lookAgain is how long after a write a Service is compared with it, though the model reports no change: if somebody
// else restores the status as it was before the write, and the watch is interrupted in between, the model never
// differs from what it had.
const lookAgain = time.Minute

// written notes that the status of a Service was written, and tells its owners.
func (c *Controller) written(ctx context.Context, key cluster.Key, j job) {
	c.queue.AddAfter(key, lookAgain)
	c.mu.Lock()
	if s := c.states[key]; s != nil {
		s.note(j.addrs)
	}
	c.mu.Unlock()
	texts := make([]string, 0, len(j.addrs))
	for _, addr := range j.addrs {
		texts = append(texts, addr.String())
	}
	if j.result == Repaired {
		c.cfg.Log.Warn("somebody else changed the addresses of a service; they are restored", "service", key,
			"addresses", texts)
		return
	}
	c.cfg.Log.Info("addresses of service", "service", key, "addresses", texts)
	if len(texts) > 0 {
		c.tell(ctx, key, events.Event{
			Type: corev1.EventTypeNormal, Reason: "IPAllocated", Note: "assigned " + strings.Join(texts, ", "),
		})
	}
}

// tell writes an Event about a Service. Without it, addresses are assigned all the same.
func (c *Controller) tell(ctx context.Context, key cluster.Key, e events.Event) {
	e.Object, e.Action, e.Once = cluster.Ref{Kind: cluster.KindService, Key: key}, "AllocateAddress", true
	if err := c.cfg.Tell(ctx, e); err != nil && ctx.Err() == nil {
		c.cfg.Log.Warn("event not written", "err", err)
	}
}
