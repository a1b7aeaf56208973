package app

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/pod/connection"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/live"
	"portolan.dev/portolan/internal/pod/suite"
)

// The bounds of a suite with packets.
const (
	// mostSent is how many cases are compared with packets, and atOnce how many of them at a time.
	mostSent, atOnce = 5000, 8
	// suiteBudget is how long all of them take at most.
	suiteBudget = 10 * time.Minute
)

// TestLive is Test, with the cases compared with packets: one whose packets see something else than the model says
// does not hold. Those that cannot be compared are judged by the model alone, and say why.
func (i *Inspector) TestLive(
	ctx context.Context, s *suite.Suite, n NodeSettings, p Packets,
) (all []suite.Result, err error) {
	all, err = i.test(ctx, s, n, func(k int, _ *suite.Result) bool { return k < mostSent })
	if ctx.Err() != nil {
		return all, err
	}
	t := &suiteSender{Inspector: i, how: p, node: n, origins: make(map[string]*live.Origin)}
	defer t.close()
	sending, cancel := context.WithTimeout(ctx, suiteBudget)
	defer cancel()
	var running sync.WaitGroup
	next := make(chan *suite.Result)
	for range atOnce {
		running.Go(func() {
			for r := range next {
				t.send(sending, r)
				if r.Passed() {
					r.Explanation = nil
				}
			}
		})
	}
	for k := range all {
		next <- &all[k]
	}
	close(next)
	running.Wait()
	if ctx.Err() != nil {
		err = errors.Join(err, ctx.Err())
	}
	return all, err
}

// suiteSender compares the cases of a suite with packets. Its origins are those of the clients, by their names.
type suiteSender struct {
	*Inspector
	how     Packets
	node    NodeSettings
	lock    sync.Mutex // of origins
	origins map[string]*live.Origin
}

func (t *suiteSender) close() {
	for _, o := range t.origins {
		o.Close()
	}
}

// origin finds where a client is, once.
func (t *suiteSender) origin(c *connection.Client) (*live.Origin, error) {
	if t.how.Origins != nil {
		return t.how.Origins(c), nil
	}
	t.lock.Lock()
	defer t.lock.Unlock()
	name := c.String()
	if o := t.origins[name]; o != nil {
		return o, nil
	}
	o, err := live.Find(c, t.how.NetNS)
	if err == nil {
		t.origins[name] = o
	}
	return o, err
}

// send compares a case with packets. Of a client that is not at hand nothing is sent: its lookups would be answered by
// what this machine reaches, which need not be the cluster's DNS.
func (t *suiteSender) send(ctx context.Context, r *suite.Result) {
	e := r.Explanation
	switch {
	case e == nil:
		r.NotSent = fmt.Sprintf("packets are sent for the first %d cases", mostSent)
		return
	case ctx.Err() != nil:
		r.NotSent = "there was no time left"
		return
	}
	client := connection.Client{Subject: r.Client}
	if r.Elsewhere != nil {
		client = *r.Elsewhere
	}
	var err error
	t.store.View(func(v *cluster.View) { err = located(v, t.proxySettings(), &client) })
	how := t.how
	if err == nil {
		how.Origin, err = t.origin(&client)
	}
	if err != nil {
		r.NotSent = err.Error()
		return
	}
	ctx, cancel := context.WithTimeout(ctx, live.Budget)
	defer cancel()
	c := &comparison{Inspector: t.Inspector, client: &client, origin: how.Origin, how: how}
	if e.Name != nil && how.Origin.Dialer != nil {
		q := Question{Name: e.Name.Name, Subject: r.Client, Libc: dnsconfig.Glibc, Node: t.node}
		c.lookup(ctx, q)
	}
	c.compare(ctx, e, &Way{Client: &client, Message: r.Case.Message})
	r.Compare()
}
