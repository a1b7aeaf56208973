// Package settings declares the section of the configuration file for Ingress and Gateway API: its keys,
// its defaults and what it compiles to.
package settings

import (
	"crypto/tls"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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
	TLS        TLS     `yaml:"tls"`
	// Pool are addresses for single Gateways.
	Pool          []string `yaml:"pool"`
	PoolByDefault bool     `yaml:"poolByDefault"`
	NodeName      string   `yaml:"nodeName"`
	// Experimental has fields of the experimental channel of Gateway API have an effect.
	Experimental bool `yaml:"experimental"`
	// Endpoints are those of Services in place of the cluster's.
	Endpoints []string `yaml:"endpoints"`
	// TrustedClients are ranges of clients whose X-Forwarded fields are passed on.
	TrustedClients []string `yaml:"trustedClients"`
	AccessLog      string   `yaml:"accessLog"`
	// RouteMetrics is how many routes have series of their own.
	RouteMetrics int     `yaml:"routeMetrics"`
	Tracing      Tracing `yaml:"tracing"`
	Limits       Limits  `yaml:"limits"`
	Drain        Drain   `yaml:"drain"`
	// Handover is the path of a socket at which the next process gets the listeners; empty without one.
	Handover string  `yaml:"handover"`
	Publish  Publish `yaml:"publish"`
	// Lease is the Lease by which one of several gateways writes statuses, as namespace/name.
	Lease string `yaml:"lease"`
}

// Ingress is the section of Ingresses.
type Ingress struct {
	Controller string `yaml:"controller"`
	Port       int    `yaml:"port"`
	TLSPort    int    `yaml:"tlsPort"`
	// Certificate and Key are PEM files. They are read again when they change.
	Certificate string `yaml:"certificate"`
	Key         string `yaml:"key"`
	// Annotations is nginx if those of ingress-nginx have an effect; empty if none have.
	Annotations string `yaml:"annotations"`
}

// TLS is the section of the TLS of clients.
type TLS struct {
	MinVersion   string   `yaml:"minVersion"`   // 1.2 or 1.3
	CipherSuites []string `yaml:"cipherSuites"` // of TLS 1.2, by their names; none for those that tlsfront has
	TicketSecret string   `yaml:"ticketSecret"` // namespace/name; empty without one
}

// Publish is the section of the addresses in statuses. The first that is set counts.
type Publish struct {
	Service   string   `yaml:"service"` // namespace/name
	Addresses []string `yaml:"addresses"`
	Node      bool     `yaml:"node"`
}

// Tracing is the section of traces of requests.
type Tracing struct {
	// Endpoint is the URL of a collector; empty without one.
	Endpoint string `yaml:"endpoint"`
	// OneIn is one of how many requests without a trace begin one.
	OneIn int `yaml:"oneIn"`
}

// Limits is the section of what clients can make the gateway hold.
type Limits struct {
	Connections int          `yaml:"connections"` // 0 is as many as the memory limit allows
	Head        key.Size     `yaml:"head"`
	HeadTimeout key.Duration `yaml:"headTimeout"`
	IdleTimeout key.Duration `yaml:"idleTimeout"`
	StreamIdle  key.Duration `yaml:"streamIdle"`
	SessionIdle key.Duration `yaml:"sessionIdle"`
	BodyRate    int          `yaml:"bodyRate"` // octets per second
	BodyGrace   key.Duration `yaml:"bodyGrace"`
}

// Drain is the section of how long what is under way goes on.
type Drain struct {
	Endpoint key.Duration `yaml:"endpoint"` // that was removed
	Upgraded key.Duration `yaml:"upgraded"` // at an endpoint that was removed
	Listener key.Duration `yaml:"listener"` // that was removed
	Shutdown key.Duration `yaml:"shutdown"`
}

// Default returns the section of a file that lacks it.
func Default() Gateway {
	return Gateway{
		Listen:        []string{"127.0.0.1"},
		PortOffset:    8000,
		Controller:    GatewayController,
		Ingress:       Ingress{Controller: IngressController, Port: 80, TLSPort: 443},
		TLS:           TLS{MinVersion: "1.2"},
		PoolByDefault: true,
		AccessLog:     "off",
		RouteMetrics:  200,
		Tracing:       Tracing{OneIn: 100},
		Lease:         "kube-system/portolan-gateway",
		Limits: Limits{
			Head: 16 << 10, HeadTimeout: key.Duration(10 * time.Second), IdleTimeout: key.Duration(2 * time.Minute),
			StreamIdle: key.Duration(time.Hour), SessionIdle: key.Duration(time.Minute),
			BodyRate: 240, BodyGrace: key.Duration(20 * time.Second),
		},
		Drain: Drain{
			Endpoint: key.Duration(30 * time.Second), Upgraded: key.Duration(time.Hour),
			Listener: key.Duration(30 * time.Second), Shutdown: key.Duration(25 * time.Second),
		},
	}
}

// Compiled is the section in the types of the packages that use it.
type Compiled struct {
	// Listen are the addresses of listeners without their own; the zero Addr is all addresses.
	Listen     []netip.Addr
	PortOffset uint16
	Compile    compile.Config
	// Certificate and Key are the files of the certificate for hosts that have none; empty without one.
	Certificate, Key string
	// MinTLS is the lowest version of TLS, 0 for 1.2, and Suites are the cipher suites of TLS 1.2, nil for those that
	// tlsfront has.
	MinTLS uint16
	Suites []uint16
	// TicketNamespace and TicketName are the Secret with the keys of session tickets; empty without one.
	TicketNamespace, TicketName string
	Trusted                     []netip.Prefix
	// AccessLog is the format of lines; RouteMetrics is how many routes have series of their own.
	AccessLog    string
	RouteMetrics int
	// TraceEndpoint is the URL of a collector, empty without one; TraceOneIn is one of how many requests without a
	// trace begin one.
	TraceEndpoint string
	TraceOneIn    int
	Limits        h1.Limits
	// StreamIdle and SessionIdle are for how long connections that are passed on, and sessions of UDP, may be silent.
	StreamIdle, SessionIdle time.Duration
	// Connections is the highest number of connections; 0 is as many as the memory limit allows.
	Connections int
	// DrainEndpoint and DrainUpgraded are how long requests, and upgraded connections, may go on at an endpoint
	// that was removed.
	DrainEndpoint, DrainUpgraded time.Duration
	// DrainListener and DrainShutdown are how long requests may go on at a listener that was removed, and when
	// the process stops.
	DrainListener, DrainShutdown time.Duration
	// Handover is the path of the socket at which the next process gets the listeners; empty without one.
	Handover string
	// PublishNode: the addresses of the Node are published. Compile.Publish lacks its name if it is not configured.
	PublishNode bool
	// LeaseNamespace and LeaseName are the Lease by which one of several gateways writes statuses.
	LeaseNamespace, LeaseName string
}

// Compile checks the section, except for the checks in Keys, and returns it in the types of the packages
// that use it. Its error is a *key.Error.
func (g *Gateway) Compile() (Compiled, error) {
	made := Compiled{
		PortOffset: uint16(g.PortOffset), Connections: g.Limits.Connections, Handover: g.Handover,
		AccessLog: g.AccessLog, RouteMetrics: g.RouteMetrics, TraceEndpoint: g.Tracing.Endpoint,
		TraceOneIn: g.Tracing.OneIn,
		Limits: h1.Limits{
			Head: int(g.Limits.Head), HeadTimeout: time.Duration(g.Limits.HeadTimeout),
			IdleTimeout: time.Duration(g.Limits.IdleTimeout), Rate: g.Limits.BodyRate,
			Grace: time.Duration(g.Limits.BodyGrace),
		},
		StreamIdle: time.Duration(g.Limits.StreamIdle), SessionIdle: time.Duration(g.Limits.SessionIdle),
		DrainEndpoint: time.Duration(g.Drain.Endpoint), DrainUpgraded: time.Duration(g.Drain.Upgraded),
		DrainListener: time.Duration(g.Drain.Listener), DrainShutdown: time.Duration(g.Drain.Shutdown),
		Compile: compile.Config{
			GatewayController: g.Controller, IngressController: g.Ingress.Controller, IngressPort: uint16(g.Ingress.Port),
			IngressTLSPort: uint16(g.Ingress.TLSPort), DefaultCertificate: g.Ingress.Certificate != "",
			PoolByDefault: g.PoolByDefault, Node: g.NodeName, Experimental: g.Experimental,
			Annotated: g.Ingress.Annotations == "nginx",
		},
		Certificate: g.Ingress.Certificate, Key: g.Ingress.Key,
	}
	if g.Controller == "" {
		return made, key.Errorf("gateway.controller", "is empty; leave it out for %s", GatewayController)
	}
	if g.Ingress.Controller == "" {
		return made, key.Errorf("gateway.ingress.controller", "is empty; leave it out for %s", IngressController)
	}
	if text := g.Ingress.Annotations; text != "" && text != "nginx" {
		return made, key.Errorf("gateway.ingress.annotations", "%q is not nginx; leave it out for none", text)
	}
	if err := g.Ingress.check(g.PortOffset); err != nil {
		return made, err
	}
	if text := g.Tracing.Endpoint; text != "" {
		if at, err := url.Parse(text); err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" {
			return made, key.Errorf("gateway.tracing.endpoint", "%q is not a URL such as http://collector:4318/v1/traces", text)
		}
	}
	for i, text := range g.TrustedClients {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return made, key.ItemErrorf("gateway.trustedClients", i, "%q is not a range such as 192.0.2.0/24", text)
		}
		made.Trusted = append(made.Trusted, prefix.Masked())
	}
	if g.Handover != "" && !filepath.IsAbs(g.Handover) {
		return made, key.Errorf("gateway.handover", "%q is not an absolute path", g.Handover)
	}
	if err := g.TLS.compile(&made); err != nil {
		return made, err
	}
	if err := g.compileStatus(&made); err != nil {
		return made, err
	}
	if err := g.compileEndpoints(&made); err != nil {
		return made, err
	}
	if err := g.compileListen(&made); err != nil {
		return made, err
	}
	return made, g.compilePool(&made)
}

// check checks the section, with the number that is added to its ports.
func (i *Ingress) check(offset int) error {
	switch {
	case max(i.Port, i.TLSPort)+offset > 65535:
		return key.Errorf("gateway.portOffset", "with it a port of Ingresses is above 65535")
	case i.Port == i.TLSPort:
		return key.Errorf("gateway.ingress.tlsPort", "is the port of HTTP, too")
	case i.Certificate == "" && i.Key != "":
		return key.Errorf("gateway.ingress.certificate", "a key needs its certificate; give both")
	case i.Certificate != "" && i.Key == "":
		return key.Errorf("gateway.ingress.key", "a certificate needs its key; give both")
	}
	return nil
}

func (t *TLS) compile(made *Compiled) error {
	if t.MinVersion == "1.3" {
		made.MinTLS = tls.VersionTLS13
		if len(t.CipherSuites) > 0 {
			return key.Errorf("gateway.tls.cipherSuites", "are those of TLS 1.2, which gateway.tls.minVersion excludes")
		}
	}
	for i, name := range t.CipherSuites {
		known := tls.CipherSuites()
		of12 := func(s *tls.CipherSuite) bool {
			return s.Name == name && slices.Contains(s.SupportedVersions, tls.VersionTLS12)
		}
		n := slices.IndexFunc(known, of12)
		if n < 0 {
			return key.ItemErrorf(
				"gateway.tls.cipherSuites", i, "%q is not a cipher suite of TLS 1.2 such as %s", name, known[len(known)-1].Name,
			)
		}
		made.Suites = append(made.Suites, known[n].ID)
	}
	if t.TicketSecret != "" {
		var ok bool
		if made.TicketNamespace, made.TicketName, ok = cutName(t.TicketSecret); !ok {
			return key.Errorf("gateway.tls.ticketSecret", "%q is not namespace/name", t.TicketSecret)
		}
	}
	return nil
}

// compileStatus checks what the statuses need.
func (g *Gateway) compileStatus(made *Compiled) error {
	var ok bool
	if made.LeaseNamespace, made.LeaseName, ok = cutName(g.Lease); !ok {
		return key.Errorf("gateway.lease", "%q is not namespace/name", g.Lease)
	}
	if text := g.Publish.Service; text != "" {
		if made.Compile.Publish.Service.Namespace, made.Compile.Publish.Service.Name, ok = cutName(text); !ok {
			return key.Errorf("gateway.publish.service", "%q is not namespace/name", text)
		}
	}
	for i, text := range g.Publish.Addresses {
		if _, err := netip.ParseAddr(text); err != nil && (text == "" || strings.ContainsAny(text, ":/ ")) {
			return key.ItemErrorf("gateway.publish.addresses", i, "%q is neither an IP address nor a hostname", text)
		}
	}
	made.Compile.Publish.Addresses, made.PublishNode = g.Publish.Addresses, g.Publish.Node
	if g.Publish.Node {
		made.Compile.Publish.Node = g.NodeName
	}
	return nil
}

// cutName cuts namespace/name.
func cutName(text string) (namespace, name string, ok bool) {
	namespace, name, ok = strings.Cut(text, "/")
	return namespace, name, ok && namespace != "" && name != "" && !strings.Contains(name, "/")
}

func (g *Gateway) compilePool(made *Compiled) error {
	for i, text := range g.Pool {
		addr, err := netip.ParseAddr(trimBrackets(text))
		if addr = addr.Unmap(); err != nil || addr.IsUnspecified() || addr.IsMulticast() {
			return key.ItemErrorf("gateway.pool", i, "%q is not an address of a host, such as 192.0.2.1", text)
		}
		switch {
		case slices.Contains(made.Compile.Pool, addr):
			return key.ItemErrorf("gateway.pool", i, "%q is given twice", text)
		case slices.Contains(made.Listen, addr):
			return key.ItemErrorf("gateway.pool", i, "%q is an address of gateway.listen, too", text)
		}
		made.Compile.Pool = append(made.Compile.Pool, addr)
	}
	return nil
}

// likeEndpoint says what items of endpoints are like.
const likeEndpoint = "such as shop/web=127.0.0.1:3000 or shop/web:80=127.0.0.1:3000, with an IP address and the " +
	"number of the Service's port"

func (g *Gateway) compileEndpoints(made *Compiled) error {
	const path = "gateway.endpoints"
	set := make(map[compile.ServicePort][]netip.AddrPort)
	for i, text := range g.Endpoints {
		of, address, _ := strings.Cut(text, "=")
		addr, err := netip.ParseAddrPort(address)
		object, number, hasPort := strings.Cut(of, ":")
		namespace, service, objectErr := key.Object(path, object)
		port, portErr := uint64(0), error(nil)
		if hasPort {
			port, portErr = strconv.ParseUint(number, 10, 16)
		}
		if err != nil || objectErr != nil || portErr != nil || hasPort && port == 0 || addr.Port() == 0 {
			return key.ItemErrorf(path, i, "%q is not "+likeEndpoint, text)
		}
		at := compile.ServicePort{Namespace: namespace, Service: service, Port: uint16(port)}
		set[at] = append(set[at], addr)
	}
	if len(set) > 0 {
		made.Compile.Endpoints = set
	}
	return nil
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
