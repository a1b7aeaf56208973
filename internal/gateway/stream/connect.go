package stream

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"syscall"
	"time"

	"portolan.dev/portolan/internal/gateway/balance"
	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/support/sockbuf"
)

// maxAttempts is how many endpoints are tried.
const maxAttempts = 3

// group is the connections to an endpoint.
type group struct{ conns map[net.Conn]struct{} }

// connect returns a connection to an endpoint of the Record's rule, of which leave must be called at its end. Without
// one it returns why. If the TLS of the client has ended here, TLS is spoken with upstreams that have it; the
// certificate is the gateway's for them, nil for none.
func (s *Server) connect(
	r *Record, ended bool, certificate *tls.Certificate,
) (c net.Conn, leave func(), reason table.Reason) {
	backend := table.ChooseBackend(r.Rule.Backends)
	switch {
	case backend == nil:
		return nil, nil, NoBackend
	case backend.Upstream == (table.Upstream{}):
		return nil, nil, backend.Reason
	}
	r.Upstream = backend.Upstream
	var config *tls.Config
	if ended && r.Upstream.Secure() {
		var err error
		if config, err = s.secures.config(r.Upstream, certificate); err != nil {
			s.cfg.Log.Debug("TLS cannot be spoken", "upstream", r.Upstream, "err", err)
			return nil, nil, Insecure
		}
	}
	pool := s.cfg.Endpoints.Pool(r.Upstream)
	if pool == nil {
		return nil, nil, NoEndpoint
	}
	var tried []*balance.Endpoint
	for reason = NoEndpoint; r.Attempts < maxAttempts; reason = Unreachable {
		e := pool.Pick(tried...)
		if e == nil {
			break
		}
		r.Attempts++
		r.Endpoint = e.Addr
		c, err := s.dial(e, config)
		if err == nil {
			pool.Report(e, true)
			return c, s.join(e, c), ""
		}
		e.Done()
		s.cfg.Log.Debug("an endpoint does not accept a connection", "endpoint", e.Addr, "err", err)
		if exhausted(err) {
			return nil, nil, Unreachable
		}
		pool.Report(e, false)
		tried = append(tried, e)
	}
	return nil, nil, reason
}

// dial makes a connection to an endpoint, with TLS unless config is nil.
func (s *Server) dial(e *balance.Endpoint, config *tls.Config) (net.Conn, error) {
	s.mu.Lock()
	size := sockbuf.Size(s.count)
	s.mu.Unlock()
	d := net.Dialer{Control: sockbuf.Dialing(size)}
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Connect)
	defer cancel()
	if config != nil {
		return (&tls.Dialer{NetDialer: &d, Config: config}).DialContext(ctx, "tcp", e.Addr.String())
	}
	return d.DialContext(ctx, "tcp", e.Addr.String())
}

// exhausted reports whether an error means that this process, not the endpoint, lacks something.
func exhausted(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.EADDRNOTAVAIL) ||
		errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM)
}

// join has a connection be one of its endpoint, and end some time after that is removed.
func (s *Server) join(e *balance.Endpoint, c net.Conn) (leave func()) {
	s.mu.Lock()
	g := s.groups[e]
	fresh := g == nil
	if fresh {
		g = &group{make(map[net.Conn]struct{})}
		s.groups[e] = g
	}
	g.conns[c] = struct{}{}
	s.count++
	s.mu.Unlock()
	if fresh {
		e.OnRemoval(func() { time.AfterFunc(s.cfg.Drain, func() { s.remove(e) }) })
	}
	return func() {
		s.mu.Lock()
		delete(g.conns, c)
		s.count--
		s.mu.Unlock()
		e.Done()
	}
}

// remove ends what is left at an endpoint that was removed.
func (s *Server) remove(e *balance.Endpoint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.groups[e].conns {
		c.Close()
	}
	delete(s.groups, e)
}
