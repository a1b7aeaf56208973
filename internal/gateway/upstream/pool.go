package upstream

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"
	"unique"

	"portolan.dev/portolan/internal/gateway/balance"
	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/gateway/wire"
	"portolan.dev/portolan/internal/support/sockbuf"
)

const (
	// sweepEvery is how often connections are looked at that are not in use: whether they are older than IdleTimeout,
	// or the endpoint has closed them.
	sweepEvery = time.Second
	// sweepMost is at how many, those first that were not in use for the longest time.
	sweepMost = 256
)

// Client has the connections to endpoints.
type Client struct {
	cfg Config

	mu        sync.Mutex
	endpoints map[peer]*endpoint
	count     int   // of connections of HTTP/1.1
	idle      conns // of all endpoints, the last one that was put first
	sweeper   *time.Timer
	sweeping  bool
	closed    bool
}

// New returns a Client without connections.
func New(cfg Config) *Client {
	return &Client{cfg: cfg.withDefaults(), endpoints: make(map[peer]*endpoint)}
}

// peer is an endpoint, to which the gateway shows a certificate; nil for none. Endpoints of upstreams that differ in
// TLS differ, too.
type peer struct {
	*balance.Endpoint
	certificate *tls.Certificate
}

// endpoint is the connections to an endpoint.
type endpoint struct {
	tls   *tls.Config // nil without TLS
	conns map[*conn]struct{}
	idle  []*conn // the last one that was put last
	// http2 is nil before the first exchange over HTTP/2, and streams are the exchanges over it that go on.
	http2   *http.Transport
	streams map[*http2Exchange]struct{}
	removed bool
	drained bool // the exchanges with an endpoint that was removed were ended
}

// conn is a connection of HTTP/1.1.
type conn struct {
	net.Conn
	client *Client
	of     *endpoint
	in     wire.Buffer
	from   *wire.Receiver
	abort  func() // closes it

	// These are guarded by Client.mu.
	used          bool // for an exchange before this one
	upgraded      bool
	since         time.Time // when it was put
	before, after *conn     // in Client.idle, while it is not in use
}

// conns is a list of connections.
type conns struct {
	first, last *conn
	n           int
}

func (l *conns) pushFront(c *conn) {
	if c.after = l.first; c.after == nil {
		l.last = c
	} else {
		c.after.before = c
	}
	l.first = c
	l.n++
}

func (l *conns) remove(c *conn) {
	if c.before != nil {
		c.before.after = c.after
	} else {
		l.first = c.after
	}
	if c.after != nil {
		c.after.before = c.before
	} else {
		l.last = c.before
	}
	c.before, c.after = nil, nil
	l.n--
}

// of returns the connections to the endpoint of a request.
func (c *Client) of(e *balance.Endpoint, r *Request) (*endpoint, error) {
	to := peer{e, r.Certificate}
	c.mu.Lock()
	of := c.endpoints[to]
	if of != nil {
		c.mu.Unlock()
		return of, nil
	}
	of = &endpoint{conns: make(map[*conn]struct{}), streams: make(map[*http2Exchange]struct{})}
	if r.TLS != (unique.Handle[table.TLS]{}) {
		var err error
		if of.tls, err = ClientConfig(new(r.TLS.Value()), r.Certificate); err != nil {
			c.mu.Unlock()
			return nil, &Error{Unsent, err}
		}
	}
	c.endpoints[to] = of
	c.mu.Unlock()
	e.OnRemoval(func() { c.remove(to, of) })
	return of, nil
}

// remove closes the connections to an endpoint that are not in use, and the others after a while.
func (c *Client) remove(to peer, of *endpoint) {
	c.mu.Lock()
	delete(c.endpoints, to)
	of.removed = true
	http2 := of.http2
	c.mu.Unlock()
	c.forget(of)
	if http2 != nil {
		http2.CloseIdleConnections()
	}
	time.AfterFunc(c.cfg.Drain, func() { c.drain(of) })
}

// drain ends the exchanges with an endpoint, but for connections that became another protocol's.
func (c *Client) drain(of *endpoint) {
	c.mu.Lock()
	of.drained = true
	upgraded := 0
	for conn := range of.conns {
		if conn.upgraded {
			upgraded++
		} else {
			conn.Close()
		}
	}
	for x := range of.streams {
		x.cancel()
	}
	c.mu.Unlock()
	if upgraded == 0 {
		return
	}
	time.AfterFunc(c.cfg.DrainUpgraded-c.cfg.Drain, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for conn := range of.conns {
			conn.Close()
		}
	})
}

// Close closes the connections that are not in use, and from now on each when it is not any more.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	var transports []*http.Transport
	for _, of := range c.endpoints {
		if of.http2 != nil {
			transports = append(transports, of.http2)
		}
	}
	for c.idle.last != nil {
		c.drop(c.idle.last)
	}
	c.mu.Unlock()
	for _, t := range transports {
		t.CloseIdleConnections()
	}
}

// drop closes a connection that is not in use. The caller holds the lock.
func (c *Client) drop(conn *conn) {
	c.idle.remove(conn)
	of := conn.of
	for i, other := range of.idle {
		if other == conn {
			of.idle = append(of.idle[:i], of.idle[i+1:]...)
			break
		}
	}
	c.lose(of, conn)
	conn.Close()
}

// connect returns a connection to an endpoint: the one that was in use last, or a new one.
func (c *Client) connect(ctx context.Context, e *balance.Endpoint, r *Request) (*conn, error) {
	of, err := c.of(e, r)
	if err != nil {
		return nil, err
	}
	for {
		conn := c.take(of)
		if conn == nil {
			return c.dial(ctx, e, of, r)
		}
		if conn.quiet() {
			return conn, nil
		}
		conn.end()
	}
}

// take returns the connection to an endpoint that was in use last; nil if none is kept.
func (c *Client) take(of *endpoint) *conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(of.idle)
	if n == 0 {
		return nil
	}
	conn := of.idle[n-1]
	of.idle[n-1] = nil
	of.idle = of.idle[:n-1]
	c.idle.remove(conn)
	return conn
}

// dial makes a connection.
func (c *Client) dial(ctx context.Context, e *balance.Endpoint, of *endpoint, r *Request) (*conn, error) {
	deadline, within := r.Deadline, cmp.Or(r.ConnectWithin, c.cfg.DialTimeout)
	c.mu.Lock()
	size := sockbuf.Size(c.count)
	c.mu.Unlock()
	d := net.Dialer{Timeout: within, Deadline: deadline, Control: sockbuf.Dialing(size)}
	nc, err := d.DialContext(ctx, "tcp", e.Addr.String())
	if exhausted(err) && c.makeRoom() {
		nc, err = d.DialContext(ctx, "tcp", e.Addr.String())
	}
	if err == nil && of.tls != nil {
		nc, err = handshake(ctx, nc, of.tls, earlier(deadline, time.Now().Add(within)))
	}
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case !deadline.IsZero() && !time.Now().Before(deadline):
		return nil, os.ErrDeadlineExceeded
	case exhausted(err):
		return nil, &Error{Exhausted, err}
	default:
		return nil, &Error{Unsent, err}
	}
	made := newConn(c, of, nc)
	c.mu.Lock()
	defer c.mu.Unlock()
	if of.drained {
		nc.Close() // the exchange fails
	}
	c.add(of, made)
	return made, nil
}

// add and lose change which connections there are. The caller holds the lock.
func (c *Client) add(of *endpoint, conn *conn) {
	of.conns[conn] = struct{}{}
	c.count++
}

func (c *Client) lose(of *endpoint, conn *conn) {
	delete(of.conns, conn)
	c.count--
}

func newConn(c *Client, of *endpoint, nc net.Conn) *conn {
	return &conn{Conn: nc, client: c, of: of, from: wire.NewReceiver(nc), abort: func() { nc.Close() }}
}

// fill receives more. While it waits for that and has nothing it holds no buffer.
func (c *conn) fill() error {
	if !c.in.Empty() {
		return c.in.Fill(c)
	}
	wire.FreeRoom(c.in.Room)
	c.in = wire.Buffer{}
	room, n, err := c.from.Receive()
	c.in = wire.Buffer{Room: room, W: n}
	return err
}

// exhausted reports whether an error means that this process, not the endpoint, lacks something.
func exhausted(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.EADDRNOTAVAIL) ||
		errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM)
}

// makeRoom closes the connection that was not in use for the longest time, and reports whether there was one.
func (c *Client) makeRoom() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle.last == nil {
		return false
	}
	c.drop(c.idle.last)
	return true
}

// forget closes the connections to an endpoint that are not in use.
func (c *Client) forget(of *endpoint) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(of.idle) > 0 {
		c.drop(of.idle[len(of.idle)-1])
	}
}

// put keeps a connection for other exchanges.
func (c *conn) put() {
	wire.FreeRoom(c.in.Room)
	c.in = wire.Buffer{}
	client, of := c.client, c.of
	client.mu.Lock()
	defer client.mu.Unlock()
	if of.removed || client.closed {
		client.lose(of, c)
		c.Close()
		return
	}
	c.used, c.since = true, time.Now()
	of.idle = append(of.idle, c)
	client.idle.pushFront(c)
	if len(of.idle) > client.cfg.IdlePerEndpoint {
		client.drop(of.idle[0])
	}
	if client.idle.n > client.cfg.Idle {
		client.drop(client.idle.last)
	}
	client.sweepLater()
}

// end closes a connection that is in use.
func (c *conn) end() {
	c.Close()
	wire.FreeRoom(c.in.Room)
	c.in = wire.Buffer{}
	c.client.mu.Lock()
	defer c.client.mu.Unlock()
	c.client.lose(c.of, c)
}

// upgrade notes that the connection became another protocol's.
func (c *conn) upgrade() {
	c.client.mu.Lock()
	defer c.client.mu.Unlock()
	c.upgraded = true
}

// InUse returns the connections of HTTP/1.1 that are in use. Closing one ends its exchange.
func (c *Client) InUse() (all []net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	idle := make(map[*conn]bool, c.idle.n)
	for conn := c.idle.first; conn != nil; conn = conn.after {
		idle[conn] = true
	}
	for _, of := range c.endpoints {
		for conn := range of.conns {
			if !idle[conn] {
				all = append(all, conn.Conn)
			}
		}
	}
	return all
}

// sweepLater has sweep run after a while. The caller holds the lock.
func (c *Client) sweepLater() {
	if c.sweeping || c.idle.n == 0 {
		return
	}
	c.sweeping = true
	if c.sweeper == nil {
		c.sweeper = time.AfterFunc(sweepEvery, c.sweep)
		return
	}
	c.sweeper.Reset(sweepEvery)
}

// sweep closes the connections that were not in use for too long, or that the endpoint has closed.
func (c *Client) sweep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweeping = false
	old := time.Now().Add(-c.cfg.IdleTimeout)
	conn := c.idle.last
	for n := 0; conn != nil && n < sweepMost; n++ {
		newer := conn.before
		if !conn.since.After(old) || !conn.quiet() {
			c.drop(conn)
		}
		conn = newer
	}
	c.sweepLater()
}
