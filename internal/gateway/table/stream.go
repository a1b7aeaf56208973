package table

import "math/rand/v2"

// Transport is the protocol that carries what comes to a Socket.
type Transport uint8

// The transports.
const (
	TCP Transport = iota
	UDP
)

// String returns the name of the transport.
func (t Transport) String() string {
	if t == UDP {
		return "UDP"
	}
	return "TCP"
}

// Mode is what a Listener does with connections.
type Mode uint8

// The modes.
const (
	// Requests are served, of HTTP and gRPC.
	Requests Mode = iota
	// Stream passes on all that is sent, both ways: datagrams, or what is left of connections after TLS is terminated, if
	// there is TLS (Gateway API, TCPRoute, UDPRoute, and TLSRoute with TLSModeTerminate).
	Stream
	// Passthrough passes on connections with their TLS (Gateway API, TLSModePassthrough).
	Passthrough
)

// Opening is how connections begin at a Port, whatever Listener they are for.
type Opening uint8

// The openings.
const (
	// Plain: with a request.
	Plain Opening = iota
	// Handshake: with that of TLS.
	Handshake
	// Raw: with anything, or with nothing at all. The Port has one Listener, for all names.
	Raw
)

// NewStreamPort returns the Port of a Listener that has no hostname, whose connections, or datagrams, may begin with
// anything.
func NewStreamPort(l *Listener) *Port {
	p := NewPort([]*Listener{l}, nil)
	p.opening = Raw
	return p
}

// Opening returns how connections begin.
func (p *Port) Opening() Opening { return p.opening }

// Mixed reports whether the server name decides what is done with a connection that begins with a TLS handshake, before
// anything is answered: whether it is passed on, or whether the handshake is for a stream.
func (p *Port) Mixed() bool { return p.opening == Handshake && p.mixed }

// WithMode returns a Listener as l in another mode.
func (l *Listener) WithMode(m Mode) *Listener {
	if l.Mode == m {
		return l
	}
	made := *l
	made.Mode = m
	return &made
}

// Stream returns the listener of connections with a server name, which is in lower case and may be empty, and the Rule
// that says where they go: that of the oldest route (Gateway API, TCPRoute). The Rule is nil if there is none, and the
// listener is nil if none has the name.
func (p *Port) Stream(name string) (l *Listener, rule *Rule) {
	l, h := p.Host(name)
	if h == nil || l.Mode == Requests {
		return l, nil
	}
	if r := h.Find(&Request{Path: "/"}); r != nil {
		rule = r.Rule
	}
	return l, rule
}

// ChooseBackend chooses a backend by weight; nil if none has any.
func ChooseBackend(all []Backend) *Backend {
	total := uint64(0)
	for i := range all {
		total += uint64(all[i].Weight)
	}
	if total == 0 {
		return nil
	}
	n := rand.Uint64N(total)
	for i := range all {
		if n < uint64(all[i].Weight) {
			return &all[i]
		}
		n -= uint64(all[i].Weight)
	}
	return nil
}
