package world

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/miekg/dns"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/test/await"
)

// question is what a client sends to a server that it wants to know the name of; it is no request of HTTP.
const question = "who\n"

// The header fields of a response of HTTP with the name of the Pod, and with the path that it was asked for.
const (
	PodField  = "X-World-Pod"
	PathField = "X-World-Path"
)

// server is a program of a Pod at a port.
type server struct {
	name        string
	certificate *tls.Certificate // nil without TLS
}

// serve starts servers on the ports of Pods: those of their containers, and those that EndpointSlices have for them.
func (w *World) serve() {
	t := w.t
	t.Helper()
	ports := make(map[*Client][]cluster.Port)
	add := func(c *Client, p cluster.Port) {
		p.Name = ""
		if c != nil && p.Number != 0 && !slices.Contains(ports[c], p) {
			ports[c] = append(ports[c], p)
		}
	}
	programs := slices.Concat(w.podsOf(w.dnsService()), w.podsOf(keyOf(w.Settings.Gateway.Publish.Service)))
	w.store.View(func(v *cluster.View) {
		for p := range v.Pods() {
			if p.Spec != nil {
				for _, port := range p.Spec.Ports {
					add(w.pods[p.Key], port)
				}
			}
		}
		for s := range v.EndpointSlices() {
			for i := range s.Endpoints {
				for _, port := range s.Ports {
					add(w.byAddr[s.Endpoints[i].Addr], port)
				}
			}
		}
	})
	for c, all := range ports {
		if !slices.Contains(programs, c) {
			for _, p := range all {
				w.listen(c, p)
			}
		}
	}
	for _, at := range w.options.Servers {
		w.listenAt(w.outside, at, &server{name: w.outside.Name})
	}
	w.serveUpstream()
}

// listen starts a server of a Pod.
func (w *World) listen(c *Client, p cluster.Port) {
	s := &server{name: c.Name}
	if w.options.Certificate != nil {
		s.certificate = w.options.Certificate(keyOf(c.Name), p.Number)
	}
	for _, a := range c.Addrs {
		at := netip.AddrPortFrom(a, p.Number)
		switch p.Protocol {
		case cluster.UDP:
			w.listenUDP(c, at, s)
		case cluster.TCP:
			w.listenAt(c, at, s)
		}
	}
}

// listenAt starts a server of TCP at an address.
func (w *World) listenAt(c *Client, at netip.AddrPort, s *server) {
	t := w.t
	t.Helper()
	var l net.Listener
	must(t, c.Network.Do(func() (err error) {
		l, err = net.Listen("tcp", at.String())
		return err
	}))
	t.Cleanup(func() { l.Close() })
	a := &accepted{make(chan net.Conn), make(chan struct{}), l.Addr()}
	h := &http.Server{Handler: s, ReadHeaderTimeout: await.Patience}
	go func() { _ = h.Serve(a) }()
	go func() {
		defer close(a.ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go s.answer(conn, a)
		}
	}()
}

// accepted is a listener of connections that have been accepted.
type accepted struct {
	conns chan net.Conn
	ended chan struct{}
	addr  net.Addr
}

func (a *accepted) Accept() (net.Conn, error) {
	select {
	case conn := <-a.conns:
		return conn, nil
	case <-a.ended:
		return nil, net.ErrClosed
	}
}

func (a *accepted) Close() error   { return nil }
func (a *accepted) Addr() net.Addr { return a.addr }

// pass has the server of HTTP answer a connection.
func (a *accepted) pass(conn net.Conn) {
	select {
	case a.conns <- conn:
	case <-a.ended:
		conn.Close()
	}
}

// peeked is a connection of which the first octets have been looked at.
type peeked struct {
	net.Conn
	in *bufio.Reader
}

func (p *peeked) Read(b []byte) (int, error) { return p.in.Read(b) }

// answer answers a connection: who the server is, or requests.
func (s *server) answer(conn net.Conn, requests *accepted) {
	_ = conn.SetDeadline(time.Now().Add(await.Patience))
	p := &peeked{conn, bufio.NewReader(conn)}
	first, err := p.in.Peek(1)
	switch {
	case err != nil:
		conn.Close()
	case first[0] == question[0]:
		line := make([]byte, len(question))
		if _, err := io.ReadFull(p, line); err == nil {
			_, _ = io.WriteString(conn, s.name+"\n")
		}
		conn.Close()
	case s.certificate != nil:
		requests.pass(tls.Server(p, &tls.Config{Certificates: []tls.Certificate{*s.certificate}}))
	default:
		requests.pass(p)
	}
}

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	rw.Header().Set(PodField, s.name)
	rw.Header().Set(PathField, r.URL.RequestURI())
	fmt.Fprintf(rw, "%s %s %s%s\n", s.name, r.Method, r.Host, r.URL.RequestURI())
}

// listenUDP starts a server that answers each packet with its name.
func (w *World) listenUDP(c *Client, at netip.AddrPort, s *server) {
	t := w.t
	t.Helper()
	var conn *net.UDPConn
	must(t, c.Network.Do(func() (err error) {
		conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		return err
	}))
	t.Cleanup(func() { conn.Close() })
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			if bytes.Equal(buf[:n], []byte(question)) {
				_, _ = conn.WriteToUDPAddrPort([]byte(s.name+"\n"), from)
			}
		}
	}()
}

// serveUpstream answers lookups of the names outside of the cluster.
func (w *World) serveUpstream() {
	t := w.t
	t.Helper()
	var conn net.PacketConn
	var l net.Listener
	at := net.JoinHostPort(Upstream.String(), strconv.Itoa(53))
	must(t, w.outside.Network.Do(func() (err error) {
		if conn, err = net.ListenPacket("udp", at); err != nil {
			return err
		}
		l, err = net.Listen("tcp", at)
		return err
	}))
	for _, s := range []*dns.Server{
		{PacketConn: conn, Handler: dns.HandlerFunc(w.upstream)}, {Listener: l, Handler: dns.HandlerFunc(w.upstream)},
	} {
		go func() { _ = s.ActivateAndServe() }()
	}
	t.Cleanup(func() { conn.Close(); l.Close() })
}

func (w *World) upstream(to dns.ResponseWriter, q *dns.Msg) {
	m := new(dns.Msg).SetReply(q)
	m.RecursionAvailable = true
	name := q.Question[0].Name
	addrs, ok := w.options.Names[dns.CanonicalName(name)[:max(0, len(name)-1)]]
	if !ok {
		m.Rcode = dns.RcodeNameError
	}
	for _, a := range addrs {
		head := dns.RR_Header{Name: name, Rrtype: q.Question[0].Qtype, Class: dns.ClassINET, Ttl: 60}
		switch {
		case head.Rrtype == dns.TypeA && a.Is4():
			m.Answer = append(m.Answer, &dns.A{Hdr: head, A: a.AsSlice()})
		case head.Rrtype == dns.TypeAAAA && a.Is6():
			m.Answer = append(m.Answer, &dns.AAAA{Hdr: head, AAAA: a.AsSlice()})
		}
	}
	if len(m.Answer) == 0 {
		m.Ns = []dns.RR{&dns.SOA{
			Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: 60},
			Ns:  "ns.", Mbox: "hostmaster.", Minttl: 60,
		}}
	}
	_ = to.WriteMsg(m) // a client that has gone asks again
}
