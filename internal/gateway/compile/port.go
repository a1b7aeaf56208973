package compile

import (
	"cmp"
	"slices"

	"portolan.dev/portolan/internal/gateway/table"
)

// port is a port and what it was made of.
type port struct {
	*table.Port
	listeners []*table.Listener
	ingresses *table.Listener
	opening   table.Opening
}

// buildPorts builds the ports of which a listener changed.
func (c *Compiler) buildPorts() {
	made := make(map[table.Socket]*port)
	for _, l := range c.gateways.serving {
		for _, s := range l.sockets {
			if made[s] == nil {
				made[s] = &port{opening: l.opening()} // as all of a socket
			}
			made[s].listeners = append(made[s].listeners, c.listeners[l.name()])
		}
	}
	c.addIngresses(made)
	for s, p := range made {
		if was := c.ports[s]; was != nil && was.equal(p) {
			p.Port = was.Port
		} else {
			p.Port = p.build()
		}
	}
	c.ports = made
}

// build returns the Port.
func (p *port) build() *table.Port {
	switch p.opening {
	case table.Handshake:
		return table.NewTLSPort(p.listeners, p.ingresses)
	case table.Raw:
		return table.NewStreamPort(p.listeners[0])
	}
	return table.NewPort(p.listeners, p.ingresses)
}

// equal reports whether two ports are made of the same.
func (p *port) equal(o *port) bool {
	return p.ingresses == o.ingresses && p.opening == o.opening && slices.Equal(p.listeners, o.listeners)
}

// addIngresses adds the listener of Ingresses to its ports: to that with TLS if there are certificates, and to
// none that a Gateway has with the other protocol.
func (c *Compiler) addIngresses(ports map[table.Socket]*port) {
	c.taken = make(map[uint16]string)
	l := c.listeners[ingresses]
	if l == nil {
		return
	}
	wanted := map[uint16]table.Opening{c.cfg.IngressPort: table.Plain}
	if c.cfg.DefaultCertificate || len(c.certificates.hosts) > 0 {
		wanted[c.cfg.IngressTLSPort] = table.Handshake
	}
	for number, opening := range wanted {
		at := table.Socket{Port: number}
		p := cmp.Or(ports[at], &port{opening: opening})
		if p.opening != opening {
			c.taken[number] = p.listeners[0].Name + " serves " + openingText[p.opening]
			continue
		}
		p.ingresses = l
		ports[at] = p
	}
}

// openingText are what ports serve, for people.
var openingText = map[table.Opening]string{table.Plain: "HTTP", table.Handshake: "TLS", table.Raw: "TCP"}
