package verdicts

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"portolan.dev/portolan/test/world"
)

// question is from where to what, as an assertion has it, and how it is sent.
type question struct {
	kind     string // as in the table of results
	from, to string
	client   *world.Client
	// name is what is looked up first; empty if addrs are asked.
	name  string
	addrs []netip.Addr
	// port and network are 0 and empty if it is a lookup only, or a request.
	port    int
	network string
	request *world.Request // nil if it is none
	tries   int            // enough that each endpoint gets one
	sticky  bool           // a Service keeps the client at one of several endpoints
}

// The kinds of questions.
const (
	kindLookup  = "lookup of a name"
	kindName    = "connection to a name"
	kindPod     = "connection to a Pod"
	kindService = "connection to a cluster IP"
	kindOutside = "connection to an external IP, a load balancer or a node port"
	kindServer  = "connection to a server outside"
	kindURL     = "request through the gateway"
	kindDirect  = "request to a Service"
)

// manyTries are enough for each of a few endpoints to get one: of two, all tries go to one of them once in 2^23 times.
const manyTries = 24

// ask draws a question that has one answer, whoever asked before.
func (c *randomCluster) ask(w *world.World) question {
	for {
		if q := c.draw(w); !q.sticky {
			return q
		}
	}
}

// draw draws a question.
func (c *randomCluster) draw(w *world.World) question {
	q := question{tries: 1}
	p := pick(c, c.pods...)
	q.from, q.client = p.String(), w.Pod(p.namespace, p.name)
	switch c.IntN(12) {
	case 0, 1:
		c.askName(p, &q)
		q.kind = kindLookup
		q.to, q.network = q.name, ""
		return q
	case 2, 3:
		c.askService(&q, w)
	case 4:
		c.elsewhere(&q, w)
		to := pick(c, c.pods...)
		q.kind, q.addrs, q.network = kindPod, to.addrs[:1], "tcp"
		q.port = pick(c, to.http, to.http, metricsPort)
		q.to = fmt.Sprintf("%s:%d", netip.AddrPortFrom(to.addrs[0], 0).Addr(), q.port)
		if q.client.ResolvConf() != "" && c.chance(3) { // clients outside have IPv4 only
			q.addrs = to.addrs[1:]
			q.to = netip.AddrPortFrom(to.addrs[1], uint16(q.port)).String()
		}
	case 5:
		to := pick(c, c.pods...)
		q.kind, q.addrs, q.network, q.port = kindPod, to.addrs[:1], "udp", statsPort
		q.to = fmt.Sprintf("%s:%d/udp", to.addrs[0], q.port)
	case 6, 7:
		c.askOutside(&q, w)
	case 8:
		at := pick(c, servers...)
		q.kind, q.addrs, q.network, q.port, q.to = kindServer, []netip.Addr{at.Addr()}, "tcp", int(at.Port()), at.String()
	case 9, 10:
		c.elsewhere(&q, w)
		c.askURL(&q)
	default:
		s := pick(c, c.services...)
		q.kind = kindDirect
		q.name = s.name + "." + s.namespace
		q.to = "http://" + q.name + "/x"
		q.request = &world.Request{URL: q.to}
		q.of(s)
		q.request.Once = q.tries > 1
	}
	return q
}

// of notes how many endpoints a Service has.
func (q *question) of(s *service) {
	q.tries, q.sticky = 1, false
	if s.endpoints > 1 {
		q.tries, q.sticky = manyTries, s.affinity
	}
}

// elsewhere has the client be a node, or outside, sometimes.
func (c *randomCluster) elsewhere(q *question, w *world.World) {
	node := pick(c, nodeNames...)
	switch c.IntN(6) {
	case 0:
		q.from, q.client = "node/"+node, w.Node(node)
	case 1, 2:
		addr := pick(c, clients...)
		q.from, q.client = addr.String()+"/"+node, w.Outside(addr, node)
	}
}

// askName draws a name that a Pod looks up.
func (c *randomCluster) askName(p *pod, q *question) {
	s := pick(c, c.services...)
	switch c.IntN(8) {
	case 0:
		q.name = s.name
		for s.namespace != p.namespace {
			s = pick(c, c.services...)
			q.name = s.name
		}
	case 1:
		q.name = s.name + "." + s.namespace + ".svc"
	case 2:
		q.name = s.name + "." + s.namespace + ".svc.cluster.local"
	case 3:
		to := pick(c, c.pods...)
		q.name = fmt.Sprintf("%s.s0.%s.svc.cluster.local", to.name, to.namespace)
	case 4:
		q.name = fmt.Sprintf("nothing.%s.svc.cluster.local", s.namespace)
	case 5:
		to := pick(c, c.pods...)
		q.name = strings.ReplaceAll(to.addrs[0].String(), ".", "-") + "." + to.namespace + ".pod.cluster.local"
	default:
		q.name = s.name + "." + s.namespace
	}
}

// askService draws a connection to a Service, by its name or its address.
func (c *randomCluster) askService(q *question, w *world.World) {
	s := pick(c, c.services...)
	for s.alias != "" && c.chance(2) {
		s = pick(c, c.services...)
	}
	q.network, q.port = "tcp", 80
	if len(s.ports) > 0 {
		port := pick(c, s.ports...)
		q.port = port.number
		if port.udp {
			q.network = "udp"
		}
	}
	if c.chance(12) {
		q.port = 81 // which no Service has
	}
	q.of(s)
	if len(s.addrs) > 0 && c.chance(2) {
		q.kind = kindService
		if c.chance(5) {
			node := pick(c, nodeNames...)
			q.from, q.client = "node/"+node, w.Node(node)
		}
		q.addrs = []netip.Addr{pick(c, s.addrs...)}
		q.to = netip.AddrPortFrom(q.addrs[0], uint16(q.port)).String()
	} else {
		q.kind, q.name = kindName, s.name+"."+s.namespace
		q.to = fmt.Sprintf("%s:%d", q.name, q.port)
	}
	if q.network == "udp" {
		q.to += "/udp"
	}
}

// askOutside draws a connection to an address that a Service has outside, or to a node port.
func (c *randomCluster) askOutside(q *question, w *world.World) {
	q.kind = kindOutside
	if !c.chance(3) {
		addr, node := pick(c, clients...), pick(c, nodeNames...)
		q.from, q.client = addr.String()+"/"+node, w.Outside(addr, node)
	}
	for range 100 {
		s := pick(c, c.services...)
		q.of(s)
		var port servicePort
		if len(s.ports) > 0 {
			port = pick(c, s.ports...)
		}
		switch {
		case len(s.outside) > 0:
			q.addrs, q.port = s.outside[:1], port.number
		case port.nodePort != 0:
			// The address of the node that the client is at, or the packets arrive at.
			addr := w.Node(q.client.Node).Addrs[0]
			if addr.Is4() != s.addrs[0].Is4() {
				continue
			}
			q.addrs, q.port = []netip.Addr{addr}, port.nodePort
		default:
			continue
		}
		q.network = "tcp"
		q.to = netip.AddrPortFrom(q.addrs[0], uint16(q.port)).String()
		if port.udp {
			q.network = "udp"
			q.to += "/udp"
		}
		return
	}
	q.sticky = false
	c.elsewhere(q, w)
	c.askURL(q)
}

// askURL draws a request to the gateway.
func (c *randomCluster) askURL(q *question) {
	host := pick(c, c.hosts...)
	q.kind, q.tries = kindURL, manyTries
	q.to = pick(c, "http", "http", "https") + "://" + host + pick(c, urlPaths...)
	q.request = &world.Request{URL: q.to, Method: pick(c, urlMethods[0], urlMethods[0], urlMethods[1]), Header: http.Header{}}
	if h := pick(c, urlHeaders...); h != "" {
		name, value, _ := strings.Cut(h, ": ")
		q.request.Header.Set(name, value)
	}
	if _, pod := strings.CutPrefix(q.client.ResolvConf(), "nameserver 10.96"); pod {
		q.name = host
	} else {
		q.request.At = gatewayAddr
	}
}
