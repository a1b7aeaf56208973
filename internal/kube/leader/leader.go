// Package leader elects one of several processes as the leader, with a Lease of the
// Kubernetes API (Kubernetes documentation, "Leases").
//
// It uses the election of client-go: the holder renews the Lease, and another process
// acquires it when it was not renewed for its duration. Clocks need not agree, but must
// run at about the same speed.
package leader

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// The default durations, those of Kubernetes' own controllers
// (k8s.io/component-base/config, LeaderElectionConfiguration).
const (
	DefaultLeaseDuration = 15 * time.Second
	DefaultRenewDeadline = 10 * time.Second
	DefaultRetryPeriod   = 2 * time.Second
)

// Config configures an Election.
type Config struct {
	// Client reads and writes the Lease Namespace/Name.
	Client          kubernetes.Interface
	Namespace, Name string
	// LeaseDuration is how long after a renewal no other process can lead.
	// RenewDeadline is how long the leader tries to renew the Lease before it gives
	// up, RetryPeriod the pause between attempts of any process.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	Log                                       *slog.Logger
}

// Check reports names and durations that are invalid.
func (c *Config) Check() error {
	switch {
	case len(validation.IsDNS1123Label(c.Namespace)) > 0:
		return fmt.Errorf("namespace: %q is not a valid name of a Namespace", c.Namespace)
	case len(validation.IsDNS1123Subdomain(c.Name)) > 0:
		return fmt.Errorf("name: %q is not a valid name of a Lease", c.Name)
	case c.RetryPeriod <= 0:
		return fmt.Errorf("retryPeriod: %s is not more than 0s", c.RetryPeriod)
	case float64(c.RenewDeadline) <= leaderelection.JitterFactor*float64(c.RetryPeriod):
		return fmt.Errorf("renewDeadline: %s is not more than %.1f times retryPeriod, which is %s", c.RenewDeadline,
			leaderelection.JitterFactor, c.RetryPeriod)
	case c.LeaseDuration <= c.RenewDeadline:
		return fmt.Errorf("leaseDuration: %s is not more than renewDeadline, which is %s", c.LeaseDuration, c.RenewDeadline)
	case c.LeaseDuration < time.Second:
		return fmt.Errorf("leaseDuration: %s is less than 1s", c.LeaseDuration) // a Lease holds whole seconds
	}
	return nil
}

// ErrLost is returned by Run if another process may lead.
var ErrLost = errors.New("the lease could not be renewed: another process may lead now")

// Election is the participation of one process in an election.
type Election struct {
	cfg      Config
	identity string
	leading  atomic.Bool
}

// New returns an Election. Its identity is the host name and a random text, so that
// two processes of one host differ.
func New(cfg Config) (*Election, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("leader election: %w", err)
	}
	return &Election{cfg: cfg, identity: host + "_" + rand.Text()}, nil
}

// Leading reports whether this process leads.
func (e *Election) Leading() bool { return e.leading.Load() }

// Run waits until this process leads, then calls lead. It returns ctx's error when ctx
// is done, ErrLost when the Lease is lost, which also cancels lead's context, and lead's
// error when lead fails. In each case it first waits until lead has returned, and then
// releases the Lease if it still holds it, so that another process can lead at once.
func (e *Election) Run(ctx context.Context, lead func(context.Context) error) error {
	// Hold the Lease beyond the end of ctx, until lead has returned.
	holding, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	leads := make(chan context.Context, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: e.cfg.Namespace, Name: e.cfg.Name},
			Client:     e.cfg.Client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: e.identity},
		},
		LeaseDuration: e.cfg.LeaseDuration, RenewDeadline: e.cfg.RenewDeadline, RetryPeriod: e.cfg.RetryPeriod,
		ReleaseOnCancel: false, // client-go would not wait for lead when a renewal fails
		Name:            e.cfg.Name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { leads <- ctx },
			OnStoppedLeading: func() {},
			OnNewLeader: func(identity string) {
				e.cfg.Log.Info("leader elected", "leader", identity, "lease", e.cfg.Namespace+"/"+e.cfg.Name,
					"self", identity == e.identity)
			},
		},
	})
	if err != nil {
		return fmt.Errorf("leader election: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		elector.Run(holding)
	}()
	defer func() { // lead has returned, if it was called
		stop()
		<-ended
		if elector.IsLeader() {
			e.release(context.WithoutCancel(ctx))
		}
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-ended:
		return ErrLost
	case held := <-leads:
		return e.lead(ctx, held, lead)
	}
}

// Always calls lead as often as this process leads, until ctx is done: after the Lease was lost it waits until it
// leads again. It returns ctx's error, or lead's when lead fails.
func (e *Election) Always(ctx context.Context, lead func(context.Context) error) error {
	for {
		err := e.Run(ctx, lead)
		if ctx.Err() != nil || !errors.Is(err, ErrLost) {
			return err
		}
		e.cfg.Log.Warn("this process leads no more", "lease", e.cfg.Namespace+"/"+e.cfg.Name, "err", err)
	}
}

// lead calls lead with a context that ends with ctx, or with held, when the Lease is lost.
func (e *Election) lead(ctx, held context.Context, lead func(context.Context) error) error {
	e.leading.Store(true)
	defer e.leading.Store(false)
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(held, func() { stop(ErrLost) })()
	err := lead(working)
	if errors.Is(context.Cause(working), ErrLost) {
		return ErrLost
	}
	return err
}

// release clears the holder of the Lease if it is this process. If that fails the Lease
// expires.
func (e *Election) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.RenewDeadline)
	defer cancel()
	leases := e.cfg.Client.CoordinationV1().Leases(e.cfg.Namespace)
	lease, err := leases.Get(ctx, e.cfg.Name, metav1.GetOptions{})
	if err == nil && lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity == e.identity {
		lease.Spec.HolderIdentity = new(string)
		// The API refuses it if another process acquired the Lease since it was read.
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if err != nil {
		e.cfg.Log.Warn("lease not released, it will expire", "lease", e.cfg.Namespace+"/"+e.cfg.Name, "err", err)
	}
}
