package app

import (
	"context"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/pod/connection"
	"portolan.dev/portolan/internal/pod/explain"
	"portolan.dev/portolan/internal/pod/live"
	"portolan.dev/portolan/internal/pod/path"
	"portolan.dev/portolan/internal/pod/stubresolver"
)

// Packets is how an explanation is compared with packets.
type Packets struct {
	// Sending is how the lookup is sent. Its Dialer is that of the client's network namespace, or of the command's if
	// that is not at hand or if it names a server.
	Sending
	// NetNS is the file of the client's network namespace; empty finds it.
	NetNS string
	// Origin is where the client is; nil finds it. It is not closed.
	Origin *live.Origin
	// Origins returns where a client of a suite is; nil finds it. They are not closed.
	Origins func(*connection.Client) *live.Origin
	// Unsafe has requests sent whose method may change something.
	Unsafe bool
}

// Live is Path, compared with packets: it sends what the client would send.
func (i *Inspector) Live(ctx context.Context, w Way, p Packets) (*path.Explanation, error) {
	client := *w.Client
	var err error
	i.store.View(func(v *cluster.View) { err = located(v, i.proxySettings(), &client) })
	if err != nil {
		return nil, err
	}
	c, err := i.newComparison(&client, p)
	if err != nil {
		return nil, err
	}
	defer c.close()
	ctx, cancel := context.WithTimeout(ctx, live.Budget)
	defer cancel()
	if host := i.target(&w).Host; w.looksUp(host) {
		q := w.DNS
		q.Name = host
		w.Lookup = c.lookup(ctx, q)
	}
	c.useKernel(&w)
	e, err := i.Path(ctx, w)
	if err != nil {
		return nil, err
	}
	c.compare(ctx, e, &w)
	return e, nil
}

// LiveName is Explain, compared with packets.
func (i *Inspector) LiveName(ctx context.Context, q Question, p Packets) (*path.Explanation, error) {
	client := connection.Client{Subject: q.Subject}
	i.store.View(func(v *cluster.View) { _ = located(v, i.proxySettings(), &client) }) // its node need not be known
	c, err := i.newComparison(&client, p)
	if err != nil {
		return nil, err
	}
	defer c.close()
	ctx, cancel := context.WithTimeout(ctx, live.Budget)
	defer cancel()
	e := path.OfName(c.lookup(ctx, q))
	c.compare(ctx, e, &Way{Client: &client})
	return e, nil
}

// comparison compares explanations of ways of one client with packets.
type comparison struct {
	*Inspector
	client *connection.Client
	origin *live.Origin
	how    Packets
	looked *live.Lookup // nil if there was no lookup
}

// newComparison returns a comparison, which is to be closed.
func (i *Inspector) newComparison(client *connection.Client, p Packets) (*comparison, error) {
	origin, err := p.Origin, error(nil)
	if origin == nil {
		origin, err = live.Find(client, p.NetNS)
	}
	if err != nil {
		return nil, err
	}
	return &comparison{Inspector: i, client: client, origin: origin, how: p}, nil
}

// close closes the origin, if it was found here.
func (c *comparison) close() {
	if c.how.Origin == nil {
		c.origin.Close()
	}
}

// lookup looks a name up by the model and with packets, and returns what the explanation goes on with.
func (c *comparison) lookup(ctx context.Context, q Question) *explain.Explanation {
	how := c.how.Sending
	fromClient := c.origin.Dialer != nil && !how.Server.IsValid()
	if fromClient {
		how.Dialer = c.origin.Dialer
	}
	c.looked = &live.Lookup{FromClient: fromClient, Server: how.Server}
	how.sent = &c.looked.Sent
	q.Live = nil
	c.looked.Model = c.Explain(ctx, q)
	q.Live = &how
	c.looked.Seen = c.Explain(ctx, q)
	if c.looked.Model.Blocked() && c.looked.Seen.Answers() == stubresolver.TryAgain {
		return c.looked.Model // it says what the answers would be, if the queries were not lost
	}
	return c.looked.Seen
}

// useKernel has the kernel compared if it is that of the client's node: its namespace is here.
func (c *comparison) useKernel(w *Way) {
	if c.origin.Dialer == nil || c.client.Place == connection.Outside {
		w.Kernel, w.Judge = nil, nil
		return
	}
	if w.Kernel != nil {
		w.Kernel = &connection.KernelReader{Node: c.client.Node, Read: w.Kernel.Read}
	}
	if w.Judge != nil {
		judge := *w.Judge
		judge.Node = c.client.Node
		w.Judge = &judge
	}
}

// compare compares an explanation with packets.
func (c *comparison) compare(ctx context.Context, e *path.Explanation, w *Way) {
	live.Compare(ctx, &live.Request{
		Explanation: e, Origin: c.origin, Lookup: c.looked, Client: c.client, Message: w.Message, Wait: c.how.Wait,
		Unsafe: c.how.Unsafe,
	})
}
