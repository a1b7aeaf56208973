// Package settings declares the section of the configuration file for Ingress and Gateway API: its keys,
// its defaults and what it compiles to.
package settings

import (
	"net/netip"
	"time"

	"portolan.dev/portolan/internal/config/key"
	"portolan.dev/portolan/internal/gateway/compile"
	"portolan.dev/portolan/internal/gateway/h1"
)

// The controllers of classes, unless others are set.
const (
	GatewayController = "portolan.dev/gateway"
	IngressController = "portolan.dev/ingress"
)

// Gateway is the section of Ingress and Gateway API.
type Gateway struct {
	// Listen are the addresses at which requests are accepted; none is all.
	Listen []string `yaml:"listen"`
	// PortOffset is added to the ports of listeners.
	PortOffset int     `yaml:"portOffset"`
	Controller string  `yaml:"controller"`
	Ingress    Ingress `yaml:"ingress"`
	NodeName   string  `yaml:"nodeName"`
	// TrustedClients are ranges of clients whose X-Forwarded fields are passed on.
	TrustedClients []string `yaml:"trustedClients"`
	Limits         Limits   `yaml:"limits"`
	Drain          Drain    `yaml:"drain"`
}

// Ingress is the section of Ingresses.
type Ingress struct {
	Controller string `yaml:"controller"`
	Port       int    `yaml:"port"`
}

// Limits is the section of what clients can make the gateway hold.
type Limits struct {
	Connections int          `yaml:"connections"` // 0 is as many as the memory limit allows
	Head        key.Size     `yaml:"head"`
	HeadTimeout key.Duration `yaml:"headTimeout"`
	IdleTimeout key.Duration `yaml:"idleTimeout"`
	BodyRate    int          `yaml:"bodyRate"` // octets per second
	BodyGrace   key.Duration `yaml:"bodyGrace"`
}

// Drain is the section of how long what is under way goes on.
type Drain struct {
	Listener key.Duration `yaml:"listener"` // that was removed
	Shutdown key.Duration `yaml:"shutdown"`
}

// Default returns the section of a file that lacks it.
func Default() Gateway {
	return Gateway{
		Listen:     []string{"127.0.0.1"},
		PortOffset: 8000,
		Controller: GatewayController,
		Ingress:    Ingress{Controller: IngressController, Port: 80},
		Limits: Limits{
			Head: 16 << 10, HeadTimeout: key.Duration(10 * time.Second), IdleTimeout: key.Duration(2 * time.Minute),
			BodyRate: 240, BodyGrace: key.Duration(20 * time.Second),
		},
		Drain: Drain{Listener: key.Duration(30 * time.Second), Shutdown: key.Duration(25 * time.Second)},
	}
}

// Compiled is the section in the types of the packages that use it.
type Compiled struct {
	// Listen are the addresses of listeners without their own; the zero Addr is all addresses.
	Listen     []netip.Addr
	PortOffset uint16
	// Compile lacks what only the process knows: the addresses of Gateways.
	Compile compile.Config
	Trusted []netip.Prefix
	Limits  h1.Limits
	// Connections is the highest number of connections; 0 is as many as the memory limit allows.
	Connections int
	// DrainListener and DrainShutdown are how long requests may go on at a listener that was removed, and when
	// the process stops.
	DrainListener, DrainShutdown time.Duration
}

// Compile checks the section, except for the checks in Keys, and returns it in the types of the packages
// that use it. Its error is a *key.Error.
func (g *Gateway) Compile() (Compiled, error) {
	made := Compiled{
		PortOffset: uint16(g.PortOffset), Connections: g.Limits.Connections,
		Limits: h1.Limits{
			Head: int(g.Limits.Head), HeadTimeout: time.Duration(g.Limits.HeadTimeout),
			IdleTimeout: time.Duration(g.Limits.IdleTimeout), Rate: g.Limits.BodyRate,
			Grace: time.Duration(g.Limits.BodyGrace),
		},
		DrainListener: time.Duration(g.Drain.Listener), DrainShutdown: time.Duration(g.Drain.Shutdown),
		Compile: compile.Config{
			GatewayController: g.Controller, IngressController: g.Ingress.Controller, IngressPort: uint16(g.Ingress.Port),
			Node: g.NodeName,
		},
	}
	if g.Controller == "" {
		return made, key.Errorf("gateway.controller", "is empty; leave it out for %s", GatewayController)
	}
	if g.Ingress.Controller == "" {
		return made, key.Errorf("gateway.ingress.controller", "is empty; leave it out for %s", IngressController)
	}
	if g.Ingress.Port+g.PortOffset > 65535 {
		return made, key.Errorf("gateway.portOffset", "with it the port of Ingresses is above 65535")
	}
	for i, text := range g.TrustedClients {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return made, key.ItemErrorf("gateway.trustedClients", i, "%q is not a range such as 192.0.2.0/24", text)
		}
		made.Trusted = append(made.Trusted, prefix.Masked())
	}
	return made, g.compileListen(&made)
}

func (g *Gateway) compileListen(made *Compiled) error {
	if len(g.Listen) == 0 {
		made.Listen = []netip.Addr{{}}
	}
	for i, text := range g.Listen {
		addr, err := netip.ParseAddr(trimBrackets(text))
		if err != nil {
			return key.ItemErrorf("gateway.listen", i, "%q is not an address, such as 127.0.0.1 or [::]", text)
		}
		if addr == netip.IPv6Unspecified() {
			addr = netip.Addr{}
		}
		made.Listen = append(made.Listen, addr)
	}
	for i, addr := range made.Listen {
		for n, other := range made.Listen[:i] {
			switch {
			case addr == other:
				return key.ItemErrorf("gateway.listen", i, "%q is given twice", g.Listen[i])
			case !other.IsValid():
				return key.ItemErrorf("gateway.listen", i, "%q is one of all addresses, which %q is", g.Listen[i], g.Listen[n])
			case !addr.IsValid():
				return key.ItemErrorf("gateway.listen", i, "%q is all addresses, also %q", g.Listen[i], g.Listen[n])
			}
		}
	}
	return nil
}

// trimBrackets removes those around an IPv6 address.
func trimBrackets(text string) string {
	if n := len(text); n > 2 && text[0] == '[' && text[n-1] == ']' {
		return text[1 : n-1]
	}
	return text
}
