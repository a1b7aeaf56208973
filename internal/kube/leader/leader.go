// Package leader has one of several processes do something, by a Lease of the
// Kubernetes API.
//
// It is client-go's election: who holds the Lease renews it, and the others take
// it over when that was not done for as long as it is good. Clocks need not
// agree, only run at about the same speed.
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

// How long things take by default, as in Kubernetes' own controllers
// (k8s.io/component-base/config, LeaderElectionConfiguration).
const (
	DefaultLeaseDuration = 15 * time.Second
	DefaultRenewDeadline = 10 * time.Second
	DefaultRetryPeriod   = 2 * time.Second
)

// Config is what an Election is made from.
type Config struct {
	// Client reads and writes the Lease Namespace/Name.
	Client          kubernetes.Interface
	Namespace, Name string
	// LeaseDuration is for how long nobody else leads after a renewal.
	// RenewDeadline is for how long the leader tries to renew it before it gives
	// up, RetryPeriod how long everybody waits between two attempts.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	Log                                       *slog.Logger
}

// Check says what is wrong with names, and with how long things take; nil if
// nothing is.
func (c *Config) Check() error {
	switch {
	case len(validation.IsDNS1123Label(c.Namespace)) > 0:
		return fmt.Errorf("namespace: %q is no name of a Namespace", c.Namespace)
	case len(validation.IsDNS1123Subdomain(c.Name)) > 0:
		return fmt.Errorf("name: %q is no name of a Lease", c.Name)
	case c.RetryPeriod <= 0:
		return fmt.Errorf("retryPeriod: %s is not more than 0s", c.RetryPeriod)
	case float64(c.RenewDeadline) <= leaderelection.JitterFactor*float64(c.RetryPeriod):
		return fmt.Errorf("renewDeadline: %s is not more than %.1f times retryPeriod, which is %s", c.RenewDeadline, leaderelection.JitterFactor, c.RetryPeriod)
	case c.LeaseDuration <= c.RenewDeadline:
		return fmt.Errorf("leaseDuration: %s is not more than renewDeadline, which is %s", c.LeaseDuration, c.RenewDeadline)
	case c.LeaseDuration < time.Second:
		return fmt.Errorf("leaseDuration: %s is less than 1s", c.LeaseDuration) // Leases count whole seconds
	}
	return nil
}

// ErrLost is Run's when somebody else may lead.
var ErrLost = errors.New("the lease could not be renewed: somebody else may lead now")

// Election is one process' part in an election.
type Election struct {
	cfg      Config
	identity string
	leading  atomic.Bool
}

// New makes an Election. Its identity is the host's name and some random text:
// two processes of one host are not the same.
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

// Leading tells whether this process leads.
func (e *Election) Leading() bool { return e.leading.Load() }

// Run waits until it leads, and runs lead then. When ctx is done it returns ctx's
// error. When the Lease is lost lead's context is done, and it returns ErrLost.
// When lead fails it returns that. In each case it waits until lead has ended, and
// then gives the Lease back, if it has it still, for another to take over at once.
func (e *Election) Run(ctx context.Context, lead func(context.Context) error) error {
	// The Lease outlives ctx, until lead has ended.
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
		ReleaseOnCancel: false, // it would not wait for lead when a renewal fails
		Name:            e.cfg.Name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { leads <- ctx },
			OnStoppedLeading: func() {},
			OnNewLeader: func(identity string) {
				e.cfg.Log.Info("leader elected", "leader", identity, "lease", e.cfg.Namespace+"/"+e.cfg.Name, "self", identity == e.identity)
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
	defer func() { // lead has ended, if it was called
		stop()
		<-ended
		if elector.IsLeader() {
			e.giveBack(context.WithoutCancel(ctx))
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

// lead runs lead until ctx is done, or the Lease, which held is about, is lost.
func (e *Election) lead(ctx, held context.Context, lead func(context.Context) error) error {
	e.leading.Store(true)
	defer e.leading.Store(false)
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(held, func() { stop(ErrLost) })()
	err := lead(working)
	if context.Cause(working) == ErrLost {
		return ErrLost
	}
	return err
}

// giveBack has the Lease held by nobody, if it is held by this process. Where that
// can't be done it lapses.
func (e *Election) giveBack(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.RenewDeadline)
	defer cancel()
	leases := e.cfg.Client.CoordinationV1().Leases(e.cfg.Namespace)
	lease, err := leases.Get(ctx, e.cfg.Name, metav1.GetOptions{})
	if err == nil && lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity == e.identity {
		lease.Spec.HolderIdentity = new(string)
		// The API refuses it when somebody took the Lease since it was read.
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if err != nil {
		e.cfg.Log.Warn("lease not given back; it lapses", "lease", e.cfg.Namespace+"/"+e.cfg.Name, "err", err)
	}
}
