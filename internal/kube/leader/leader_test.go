package leader_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"portolan.dev/portolan/internal/kube/leader"
)

func config(client kubernetes.Interface) leader.Config {
	return leader.Config{
		Client: client, Namespace: "kube-system", Name: "test",
		LeaseDuration: leader.DefaultLeaseDuration, RenewDeadline: leader.DefaultRenewDeadline, RetryPeriod: leader.DefaultRetryPeriod,
		Log: slog.New(slog.DiscardHandler),
	}
}

// candidate is one that runs.
type candidate struct {
	*leader.Election
	stop  context.CancelFunc
	ended chan error
}

// run has a candidate lead with do, which nil is to wait for ctx.
func run(t *testing.T, cfg leader.Config, do func(context.Context) error) *candidate {
	t.Helper()
	if do == nil {
		do = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	}
	e, err := leader.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	c := &candidate{e, stop, make(chan error, 1)}
	go func() { c.ended <- e.Run(ctx, do) }()
	return c
}

// end stops the candidate, and waits for its end.
func (c *candidate) end(t *testing.T) {
	t.Helper()
	c.stop()
	if err := <-c.ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Run = %v, want %v", err, context.Canceled)
	}
}

// TestLeaderHandsOver checks that another process leads as soon as the first one has
// stopped leading, and not before.
func TestLeaderHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		const ending = 7 * time.Second
		first := run(t, config(client), func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(ending)
			return ctx.Err()
		})
		synctest.Wait()
		second := run(t, config(client), nil)
		time.Sleep(time.Minute)
		if !first.Leading() || second.Leading() {
			t.Fatalf("after a minute they lead: %t, %t, want the first alone", first.Leading(), second.Leading())
		}
		first.stop()
		time.Sleep(ending - time.Second)
		if second.Leading() {
			t.Error("the second leads before the first has ended")
		}
		if err := <-first.ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run = %v, want %v", err, context.Canceled)
		}
		time.Sleep(leader.DefaultRetryPeriod * 3) // much less than the lease is good
		if first.Leading() || !second.Leading() {
			t.Errorf("then they lead: %t, %t, want the second alone", first.Leading(), second.Leading())
		}
		second.end(t)
	})
}

// TestLeaseLost checks that a leader that cannot renew the Lease stops before another
// one may lead.
func TestLeaseLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var away atomic.Bool
		client.PrependReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return away.Load(), nil, errors.New("no api")
		})
		c := run(t, config(client), nil)
		synctest.Wait()
		if !c.Leading() {
			t.Fatal("it does not lead")
		}
		away.Store(true)
		began := time.Now()
		if err := <-c.ended; !errors.Is(err, leader.ErrLost) {
			t.Errorf("Run = %v, want %v", err, leader.ErrLost)
		}
		if took := time.Since(began); took > leader.DefaultLeaseDuration {
			t.Errorf("it ended after %s; another may lead after %s", took, leader.DefaultLeaseDuration)
		}
	})
}

// TestAlways: a leader that lost the Lease leads again when it can, and its context ended in between.
func TestAlways(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var away atomic.Bool
		client.PrependReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return away.Load(), nil, errors.New("no api")
		})
		e, err := leader.New(config(client))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		times, ended := 0, make(chan error, 1)
		go func() {
			ended <- e.Always(ctx, func(ctx context.Context) error {
				times++
				<-ctx.Done()
				return ctx.Err()
			})
		}()
		synctest.Wait()
		for want := 1; want <= 3; want++ {
			if !e.Leading() || times != want {
				t.Errorf("it leads: %t, for the time %d, want %d", e.Leading(), times, want)
			}
			away.Store(true)
			time.Sleep(leader.DefaultLeaseDuration)
			synctest.Wait()
			if e.Leading() {
				t.Error("without the API it leads")
			}
			away.Store(false)
			time.Sleep(leader.DefaultLeaseDuration + 3*leader.DefaultRetryPeriod)
			synctest.Wait()
		}
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Always = %v, want %v", err, context.Canceled)
		}
	})
}

// TestAlwaysFails: an error of leading ends Always.
func TestAlwaysFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := leader.New(config(fake.NewClientset()))
		if err != nil {
			t.Fatal(err)
		}
		broken := errors.New("broken")
		if err := e.Always(t.Context(), func(context.Context) error { return broken }); !errors.Is(err, broken) {
			t.Errorf("Always = %v, want %v", err, broken)
		}
	})
}

// outage is a time in which nobody who has the Lease can renew it, and in which it
// can be read, and given back.
func outage(client *fake.Clientset) *atomic.Bool {
	var on atomic.Bool
	client.PrependReactor("update", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
		lease := action.(clienttesting.UpdateAction).GetObject().(*coordinationv1.Lease)
		return on.Load() && *lease.Spec.HolderIdentity != "", nil, errors.New("no api")
	})
	return &on
}

// TestLeaseLostWhileStopping checks that a leader that cannot renew the Lease releases
// it only when it has stopped leading, even if the API server is available again before
// that.
func TestLeaseLostWhileStopping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		away := outage(client)
		const ending = 2 * time.Second // the Lease is good for longer
		var busy atomic.Bool
		first := run(t, config(client), func(ctx context.Context) error {
			busy.Store(true)
			defer busy.Store(false)
			<-ctx.Done()
			away.Store(false)
			time.Sleep(ending)
			return ctx.Err()
		})
		synctest.Wait()
		own := *get(t, client).Spec.HolderIdentity
		second := run(t, config(client), func(ctx context.Context) error {
			if busy.Load() {
				t.Error("the second leads before the first has ended")
			}
			<-ctx.Done()
			return ctx.Err()
		})
		time.Sleep(time.Second)
		away.Store(true)
		for away.Load() {
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		if holder := *get(t, client).Spec.HolderIdentity; holder != own || !busy.Load() {
			t.Errorf("while the first ends (%t) the Lease is held by %q, want %q", busy.Load(), holder, own)
		}
		if err := <-first.ended; !errors.Is(err, leader.ErrLost) {
			t.Errorf("Run = %v, want %v", err, leader.ErrLost)
		}
		if holder := *get(t, client).Spec.HolderIdentity; holder == own {
			t.Error("the first has ended and holds the Lease still")
		}
		time.Sleep(leader.DefaultRetryPeriod * 3)
		if !second.Leading() {
			t.Error("the second does not lead")
		}
		second.end(t)
	})
}

// TestLeaseTakenOverStays checks that a former leader that stops late does not release
// the Lease of the new one.
func TestLeaseTakenOverStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		away := outage(client)
		first := run(t, config(client), func(ctx context.Context) error {
			<-ctx.Done()
			away.Store(false)
			time.Sleep(time.Minute)
			return ctx.Err()
		})
		synctest.Wait()
		own := *get(t, client).Spec.HolderIdentity
		second := run(t, config(client), nil)
		time.Sleep(time.Second)
		away.Store(true)
		if err := <-first.ended; !errors.Is(err, leader.ErrLost) {
			t.Errorf("Run = %v, want %v", err, leader.ErrLost)
		}
		if holder := *get(t, client).Spec.HolderIdentity; !second.Leading() || holder == "" || holder == own {
			t.Errorf("the Lease is held by %q and the second leads: %t", holder, second.Leading())
		}
		second.end(t)
	})
}

// TestLeaderFails checks that Run returns the error of leading, and that the Lease is
// released.
func TestLeaderFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		broken := errors.New("broken")
		c := run(t, config(client), func(context.Context) error { return broken })
		if err := <-c.ended; !errors.Is(err, broken) {
			t.Errorf("Run = %v, want %v", err, broken)
		}
		if lease := get(t, client); lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != "" {
			t.Errorf("the Lease is still held: %v", lease.Spec.HolderIdentity)
		}
	})
}

// TestWaitingCandidateStops checks that a candidate stops immediately and does not
// change the Lease.
func TestWaitingCandidateStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		first := run(t, config(client), nil)
		synctest.Wait()
		second := run(t, config(client), nil)
		synctest.Wait()
		held := *get(t, client).Spec.HolderIdentity
		second.stop()
		if err := <-second.ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run = %v, want %v", err, context.Canceled)
		}
		if now := *get(t, client).Spec.HolderIdentity; held == "" || now != held {
			t.Errorf("the Lease is held by %q, want %q as before", now, held)
		}
		first.end(t)
	})
}

func get(t *testing.T, client kubernetes.Interface) *coordinationv1.Lease {
	t.Helper()
	lease, err := client.CoordinationV1().Leases("kube-system").Get(context.Background(), "test", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// TestInvalidTimes checks the errors for durations that do not fit together.
func TestInvalidTimes(t *testing.T) {
	for claim, c := range map[string]struct {
		change func(*leader.Config)
		want   string
	}{
		"defaults":           {func(*leader.Config) {}, ""},
		"no namespace":       {func(c *leader.Config) { c.Namespace = "" }, `namespace: "" is not a valid name of a Namespace`},
		"no name":            {func(c *leader.Config) { c.Name = "a/b" }, `name: "a/b" is not a valid name of a Lease`},
		"no pause":           {func(c *leader.Config) { c.RetryPeriod = 0 }, "retryPeriod: 0s is not more than 0s"},
		"too few attempts":   {func(c *leader.Config) { c.RenewDeadline = 2 * time.Second }, "renewDeadline: 2s is not more than 1.2 times retryPeriod"},
		"two may lead":       {func(c *leader.Config) { c.LeaseDuration = c.RenewDeadline }, "leaseDuration: 10s is not more than renewDeadline"},
		"parts of a second":  {func(c *leader.Config) { c.LeaseDuration, c.RenewDeadline, c.RetryPeriod = 900e6, 500e6, 100e6 }, "leaseDuration: 900ms is less than 1s"},
		"short and good, 1s": {func(c *leader.Config) { c.LeaseDuration, c.RenewDeadline, c.RetryPeriod = 1e9, 500e6, 100e6 }, ""},
	} {
		cfg := config(nil)
		c.change(&cfg)
		err := cfg.Check()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) {
			t.Errorf("%s: Check = %v, want %q", claim, err, c.want)
		}
		if _, made := leader.New(cfg); (made == nil) != (err == nil) {
			t.Errorf("%s: New = %v, Check %v", claim, made, err)
		}
	}
}
