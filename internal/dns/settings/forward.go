package settings

import (
	"crypto/x509"
	"fmt"
	"time"

	"portolan.dev/portolan/internal/config/key"
	"portolan.dev/portolan/internal/dns/cache"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/forward"
	"portolan.dev/portolan/internal/support/deadline"
)

// compileForward compiles the routes. It does not check whether an upstream is the
// server itself, because the server's addresses are not known here.
func (d *DNS) compileForward(made *Compiled) error {
	seen := make(map[dnsname.Name]bool)
	for i, r := range d.Forward.Routes {
		route, err := r.compile()
		if err != nil {
			return &key.Error{Path: "dns.forward.routes." + err.Path, Item: i, Err: err.Err}
		}
		if seen[route.Suffix] {
			return key.ItemErrorf("dns.forward.routes.suffix", i, "%s is given twice", route.Suffix)
		}
		seen[route.Suffix] = true
		made.Routes = append(made.Routes, route)
	}
	return nil
}

// compile returns the compiled route, or the error with its key.
func (r *Route) compile() (made forward.Route, bad *key.Error) {
	made = forward.Route{
		ResolvConf: r.ResolvConf, Policy: forward.SelectionPolicy(r.Policy), Timeout: time.Duration(r.Timeout),
		TrustDenials: r.TrustDenials, NoPrivate: r.NoPrivate, ClientSubnet: r.ClientSubnet,
	}
	wrong := func(path, format string, args ...any) (forward.Route, *key.Error) {
		return made, &key.Error{Path: path, Item: -1, Err: fmt.Errorf(format, args...)}
	}
	var err error
	if r.Suffix != "" && r.Suffix != "." {
		if made.Suffix, err = dnsname.Parse(r.Suffix); err != nil {
			return wrong("suffix", "%w", err)
		}
	}
	switch made.Policy {
	case "":
		made.Policy = forward.Fastest
	case forward.Fastest, forward.Sequential, forward.Random:
	default:
		return wrong("policy", "%q is not fastest, sequential or random", r.Policy)
	}
	switch {
	case r.Timeout == 0:
		made.Timeout = DefaultRouteTimeout
	case r.Timeout < 0:
		return wrong("timeout", "%s is less than 0s", made.Timeout)
	}
	if len(r.Upstreams) == 0 && r.ResolvConf == "" {
		return wrong("upstreams", "no server, and no resolvConf")
	}
	roots, err := r.roots()
	if err != nil {
		return wrong("ca", "%w", err)
	}
	for _, u := range r.Upstreams {
		upstream, err := forward.ParseUpstream(u)
		if err != nil {
			return wrong("upstreams", "%w", err)
		}
		if upstream.Transport == forward.TLS || upstream.Transport == forward.HTTPS {
			upstream.Roots = roots
		}
		made.Upstreams = append(made.Upstreams, upstream)
	}
	return made, nil
}

// roots returns the certificates in the file CA; nil for the system's.
func (r *Route) roots() (*x509.CertPool, error) {
	if r.CA == "" {
		return nil, nil
	}
	pem, err := deadline.ReadFile(r.CA, deadline.File, deadline.Small)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: no certificate in PEM", r.CA)
	}
	return roots, nil
}

func (d *DNS) compileCache(made *Compiled) error {
	k := &d.Cache
	if k.MinTTL > k.MaxTTL {
		return key.Errorf("dns.cache.minTTL", "%d is not between 0 and %d", k.MinTTL, k.MaxTTL)
	}
	made.Cache = cache.Config{
		Size: int64(k.Size), MinTTL: uint32(k.MinTTL), MaxTTL: uint32(k.MaxTTL), MaxNegativeTTL: uint32(k.MaxNegativeTTL),
		Stale: time.Duration(k.Stale),
	}
	return nil
}
