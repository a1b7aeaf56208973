package endpointslices_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/api"
	"portolan.dev/portolan/internal/kube/endpointslices"
	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/e2e/controlplane"
)

// memory makes in memory the EndpointSlices of a real cluster: what the API
// server holds is copied into a model without slices, in which they are made.
type memory struct {
	mu       sync.Mutex // of the compiler
	compiler *endpointslices.Compiler
}

// newMemory follows the cluster until the test ends.
func newMemory(t *testing.T, c *controlplane.ControlPlane) *memory {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	remote, own := cluster.NewStore(), cluster.NewStore()
	source, err := api.New(api.Config{
		Kubeconfig: c.Kubeconfig(), Kinds: cluster.Kinds(), Detail: api.All, WatchList: true, QPS: 1000, Burst: 1000,
		Silence: 10 * await.Patience, Settle: await.Patience, UserAgent: "portolan-e2e", Store: remote, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	m := &memory{compiler: endpointslices.New(endpointslices.Config{MaxEndpoints: 100, Log: log})}
	ctx, stop := context.WithCancel(t.Context())
	feed := remote.Subscribe()
	var running sync.WaitGroup
	running.Go(func() {
		if err := source.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("read the cluster: %v", err)
		}
	})
	running.Go(func() {
		for {
			changes, err := feed.Next(ctx)
			if err != nil {
				return
			}
			m.copy(remote, own, changes)
		}
	})
	t.Cleanup(func() { stop(); running.Wait() })
	return m
}

// kindsOfSlices are those that slices are made from.
var kindsOfSlices = []cluster.Kind{cluster.KindService, cluster.KindPod, cluster.KindNode}

// copy brings what changed from the one model into the other, and the slices
// there up to date. Nothing is copied before all kinds are there.
func (m *memory) copy(from, to *cluster.Store, changes cluster.Changes) {
	m.mu.Lock()
	defer m.mu.Unlock()
	from.View(func(v *cluster.View) {
		if !v.Loaded(kindsOfSlices...) {
			return
		}
		to.Update(func(tx *cluster.Tx) {
			tx.SetFreshness(cluster.Live, append(kindsOfSlices, cluster.KindEndpointSlice)...)
			for o := range changed(v, changes) {
				copyObject(tx, v, o)
			}
			m.compiler.Complete(tx)
		})
	})
}

// changed yields what may be different.
func changed(v *cluster.View, changes cluster.Changes) iter.Seq[cluster.Ref] {
	all := make(map[cluster.Ref]bool)
	for o := range changes.Objects {
		all[o] = true
	}
	if changes.Everything {
		for _, k := range kindsOfSlices {
			for o := range v.Objects(k) {
				all[o.Ref()] = true
			}
		}
	}
	return maps.Keys(all)
}

func copyObject(tx *cluster.Tx, v *cluster.View, ref cluster.Ref) {
	if o := v.Object(ref.Kind, ref.Key); o != nil {
		tx.Put(o)
	} else {
		tx.Delete(ref.Kind, ref.Key)
	}
}

// described is describe of the slices of some Services of a Namespace.
func (m *memory) described(namespace string, services []string, hints hintForm) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var made []*discoveryv1.EndpointSlice
	for _, name := range services {
		made = append(made, m.compiler.Slices(cluster.Key{Namespace: namespace, Name: name})...)
	}
	return describe(made, hints)
}

// ofControllers is describe of the slices of a Namespace that the API server
// holds and a controller keeps up.
func ofControllers(ctx context.Context, c *controlplane.ControlPlane, namespace string, hints hintForm) ([]string, error) {
	list, err := c.Client().DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{
		LabelSelector: discoveryv1.LabelManagedBy + "=endpointslice-controller.k8s.io",
	})
	if err != nil {
		return nil, err
	}
	var all []*discoveryv1.EndpointSlice
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	return describe(all, hints), nil
}

// hintForm is how hints are compared.
type hintForm uint8

const (
	// hintsWhole: as they are.
	hintsWhole hintForm = iota
	// hintsThere: only whether there are any. Which endpoints are told to serve
	// another zone, for topology mode Auto, depends on what was before.
	hintsThere
)

// describe is what slices say as sorted lines, however they share endpoints
// among themselves: a line for each endpoint, and one for each group of slices
// with the same Service, ports, labels and kind of address. Slices without
// endpoints are told so.
func describe(all []*discoveryv1.EndpointSlice, hints hintForm) (lines []string) {
	groups := make(map[string]bool)
	for _, s := range all {
		group := fmt.Sprintf("%s/%s %s %s", s.Namespace, s.Labels[discoveryv1.LabelServiceName], s.AddressType, describePorts(s.Ports))
		groups[fmt.Sprintf("%s labels=%v owners=%s", group, s.Labels, describeOwners(s))] = true
		for i := range s.Endpoints {
			lines = append(lines, group+" "+describeEndpoint(&s.Endpoints[i], hints))
		}
	}
	lines = append(lines, slices.Collect(maps.Keys(groups))...)
	slices.Sort(lines)
	return lines
}

func describePorts(ports []discoveryv1.EndpointPort) string {
	var texts []string
	for _, p := range ports {
		texts = append(texts, fmt.Sprintf("%s/%s/%d/%s", text(p.Name), text((*string)(p.Protocol)), *p.Port, text(p.AppProtocol)))
	}
	slices.Sort(texts)
	return "[" + strings.Join(texts, " ") + "]"
}

func describeOwners(s *discoveryv1.EndpointSlice) string {
	var texts []string
	for _, o := range s.OwnerReferences {
		texts = append(texts, fmt.Sprintf("%s/%s/%s/%t/%t", o.Kind, o.Name, o.UID, o.Controller != nil && *o.Controller, o.BlockOwnerDeletion != nil && *o.BlockOwnerDeletion))
	}
	return strings.Join(texts, ",")
}

func describeEndpoint(e *discoveryv1.Endpoint, hints hintForm) string {
	is := func(b *bool) string {
		if b == nil {
			return "-"
		}
		return strconv.FormatBool(*b)
	}
	return fmt.Sprintf("%v ready=%s serving=%s terminating=%s hostname=%s node=%s zone=%s pod=%s/%s/%s hints=%s",
		e.Addresses, is(e.Conditions.Ready), is(e.Conditions.Serving), is(e.Conditions.Terminating),
		text(e.Hostname), text(e.NodeName), text(e.Zone), e.TargetRef.Namespace, e.TargetRef.Name, e.TargetRef.UID, describeHints(e.Hints, hints))
}

func describeHints(h *discoveryv1.EndpointHints, form hintForm) string {
	switch {
	case h == nil:
		return "-"
	case form == hintsThere:
		return "some"
	}
	var texts []string
	for _, z := range h.ForZones {
		texts = append(texts, "zone "+z.Name)
	}
	for _, n := range h.ForNodes {
		texts = append(texts, "node "+n.Name)
	}
	return strings.Join(texts, ",")
}

// text is what a pointer leads to, and "-" where it leads nowhere.
func text(s *string) string {
	if s == nil {
		return "-"
	}
	return *s
}

// awaitEqual waits until what controllers keep in the API is what is made in
// memory. Controllers are nudged when that takes long: a Node's zone is told by
// slices only after something else happened to the Service.
func awaitEqual(ctx context.Context, within time.Duration, got func() ([]string, error), want func() []string, nudge func() error) error {
	const nudgeEvery = 500 * time.Millisecond
	deadline, nudged := time.Now().Add(within), time.Now()
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for {
		have, err := got()
		if err != nil {
			return err
		}
		wanted := want()
		if slices.Equal(have, wanted) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not equal within %s:\n%s", within, differences(have, wanted))
		}
		if time.Since(nudged) > nudgeEvery {
			if err := nudge(); err != nil {
				return err
			}
			nudged = time.Now()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// differences are the lines that only one side has.
func differences(api, memory []string) string {
	var b strings.Builder
	for _, side := range []struct {
		name        string
		lines, than []string
	}{{"only in the API: ", api, memory}, {"only in memory:  ", memory, api}} {
		for _, line := range side.lines {
			if !slices.Contains(side.than, line) {
				b.WriteString(side.name + line + "\n")
			}
		}
	}
	if b.Len() == 0 {
		return fmt.Sprintf("some lines come more often on one side\nAPI: %q\nmemory: %q", api, memory)
	}
	return b.String()
}
