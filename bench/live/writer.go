package main

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// writer writes to the API server, as fast as that can.
type writer struct{ client *kubernetes.Clientset }

func newWriter(cfg *rest.Config) (*writer, error) {
	cfg.ContentType = runtime.ContentTypeProtobuf
	cfg.QPS = -1
	client, err := kubernetes.NewForConfig(cfg)
	return &writer{client}, err
}

// fill makes everything but Pods.
func (w *writer) fill(ctx context.Context, s sizes) error {
	core, discovery := w.client.CoreV1(), w.client.DiscoveryV1()
	createService := func(o *corev1.Service) error {
		_, err := core.Services(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
		return err
	}
	createSlice := func(o *discoveryv1.EndpointSlice) error {
		_, err := discovery.EndpointSlices(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
		return err
	}
	for _, part := range []struct {
		n      int
		create func(i int) error
	}{
		{s.namespaces, func(i int) error {
			_, err := core.Namespaces().Create(ctx, s.namespace(i), metav1.CreateOptions{})
			return err
		}},
		{s.services, func(i int) error { return createService(s.service(i)) }},
		{s.headless, func(i int) error { return createService(s.headlessService(i)) }},
		{s.services, func(i int) error { return createSlice(s.slice(i)) }},
		{s.headless, func(i int) error { return createSlice(s.headlessSlice(i)) }},
	} {
		if err := atOnce(ctx, part.n, part.create); err != nil {
			return err
		}
	}
	return nil
}

// fillPods makes Pods, which run.
func (w *writer) fillPods(ctx context.Context, s sizes) error {
	return atOnce(ctx, s.pods, func(i int) error {
		want := s.pod(i)
		pods := w.client.CoreV1().Pods(want.Namespace)
		there, err := pods.Create(ctx, want, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		there.Status = want.Status
		_, err = pods.UpdateStatus(ctx, there, metav1.UpdateOptions{})
		return err
	})
}

// atOnce calls f for 0 to n-1, some at once, until one fails.
func atOnce(ctx context.Context, n int, f func(i int) error) error {
	const writers = 32
	group, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range writers {
		group.Go(func() error {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return nil
				}
				if err := f(i); err != nil {
					return err
				}
			}
			return ctx.Err()
		})
	}
	return group.Wait()
}

// putFunc writes one EndpointSlice over the one that is there.
type putFunc func(context.Context, *discoveryv1.EndpointSlice) error

// put is a putFunc.
func (w *writer) put(ctx context.Context, o *discoveryv1.EndpointSlice) error {
	_, err := w.client.DiscoveryV1().EndpointSlices(o.Namespace).Update(ctx, o, metav1.UpdateOptions{})
	return err
}

// storm changes EndpointSlices of Services with cluster IPs through put until
// it is told to stop, which gives how many it changed in a second. A pace of 0
// is as fast as put can, many at once; else one change in each pace.
func storm(ctx context.Context, s sizes, pace time.Duration, put putFunc) (stop func() (rate float64, err error)) {
	const writers = 16
	ctx, cancel := context.WithCancel(ctx)
	began := time.Now()
	var changed atomic.Int64
	one := func() error {
		n := int(changed.Add(1))
		// Another address than the time before, or it would be no change.
		i, time := n%s.services, n/s.services
		return put(ctx, change(s.slice(i), nth(stormIPs, 2*i+time%2)))
	}
	var group errgroup.Group
	if pace == 0 {
		for range writers {
			group.Go(func() error { return whileNot(ctx, one) })
		}
	} else {
		next := began
		group.Go(func() error {
			return whileNot(ctx, func() error {
				next = next.Add(pace)
				time.Sleep(time.Until(next))
				return one()
			})
		})
	}
	return func() (float64, error) {
		rate := float64(changed.Load()) / time.Since(began).Seconds()
		cancel()
		return rate, group.Wait()
	}
}

func whileNot(done context.Context, f func() error) error {
	for done.Err() == nil {
		if err := f(); err != nil && done.Err() == nil {
			return err
		}
	}
	return nil
}
