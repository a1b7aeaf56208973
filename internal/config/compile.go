package config

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/autopath"
	"portolan.dev/portolan/internal/dns/cache"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/filter"
	"portolan.dev/portolan/internal/dns/forward"
	"portolan.dev/portolan/internal/dns/kubezone"
	"portolan.dev/portolan/internal/dns/querylog"
	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/kube/admission"
	"portolan.dev/portolan/internal/kube/simulate"
)

// maxText is the length of a character-string, in octets (RFC 1035, section
// 3.3).
const maxText = 255

// keyError is a bad value.
type keyError struct {
	key  string
	item int // of a list, from 0; -1 is all of it
	err  error
}

func (e *keyError) Error() string { return e.key + ": " + e.err.Error() }
func (e *keyError) Unwrap() error { return e.err }

func badValue(key, format string, args ...any) error {
	return &keyError{key, -1, fmt.Errorf(format, args...)}
}

func badItem(key string, item int, format string, args ...any) error {
	return &keyError{key, item, fmt.Errorf(format, args...)}
}

// Validate checks what can be checked without doing anything. Its errors name
// the key.
func (c *Config) Validate() error {
	_, err := c.Compile()
	return err
}

// ReadsPods reports whether answers need the cluster's Pods.
func (d *DNS) ReadsPods() bool { return d.Pods == string(kubezone.PodsVerified) }

// Compiled is a configuration in the types of those who use it.
type Compiled struct {
	Admin        netip.AddrPort // not valid when there is none
	Probes       []netip.AddrPort
	ProbeSockets []string // paths
	Simulate     simulate.Config
	DNS          CompiledDNS
	Node         NodeConfig
	Webhook      admission.Config
	Controller   CompiledController
}

// CompiledDNS is the section dns.
type CompiledDNS struct {
	Listen        []netip.AddrPort
	ListenTLS     []netip.AddrPort
	ListenHTTPS   []netip.AddrPort
	Zone          kubezone.Config
	CookieSecrets []respond.CookieSecret
	Routes        []forward.Route
	Cache         cache.Config
	Rules         filter.Config
	Autopath      autopath.Config
	// AutopathSOA is that of the names below its suffix.
	AutopathSOA dnswire.SOA
	RateLimit   filter.RateLimit
	QueryLog    querylog.Config
	Transfer    CompiledTransfer
}

// Compile checks the configuration and gives it in the types of its users.
func (c *Config) Compile() (*Compiled, error) {
	made := new(Compiled)
	steps := []func(*Compiled) error{
		c.checkKeys, c.compileListen, c.compileRecords, c.compileRanges, c.compileSimulate, c.compileNameServer, c.compileZones,
		c.compileCookies, c.checkIdentity, c.checkIdle, c.checkKubernetes, c.compileAdmin,
		c.compileForward, c.compileCache, c.compileRules, c.compileQueryLog, c.compileWebhook,
		c.compileTransfer, c.compileNode, c.compileController,
	}
	for _, step := range steps {
		if err := step(made); err != nil {
			return nil, err
		}
	}
	return made, nil
}

func (c *Config) compileListen(made *Compiled) error {
	if len(c.DNS.Listen)+len(c.DNS.TLS.Listen)+len(c.DNS.HTTPS.Listen) == 0 {
		return badValue("dns.listen", "no address, nor in dns.tls.listen or dns.https.listen")
	}
	for _, l := range []struct {
		key   string
		texts []string
		made  *[]netip.AddrPort
	}{{"dns.listen", c.DNS.Listen, &made.DNS.Listen}, {"dns.tls.listen", c.DNS.TLS.Listen, &made.DNS.ListenTLS}, {"dns.https.listen", c.DNS.HTTPS.Listen, &made.DNS.ListenHTTPS}} {
		for i, text := range l.texts {
			addr, err := netip.ParseAddrPort(text)
			if err != nil {
				return badItem(l.key, i, "%q is not an address and port, such as 127.0.0.1:1053 or [::]:53", text)
			}
			addr = netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
			if addr.Port() != 0 && slices.Contains(*l.made, addr) {
				return badItem(l.key, i, "%q is given twice", text)
			}
			*l.made = append(*l.made, addr)
		}
	}
	return c.checkTLS()
}

// checkTLS checks what listeners over TLS need.
func (c *Config) checkTLS() error {
	switch {
	case (c.DNS.TLS.Certificate == "") != (c.DNS.TLS.Key == ""):
		key := "dns.tls.key"
		if c.DNS.TLS.Certificate == "" {
			key = "dns.tls.certificate"
		}
		return badValue(key, "a certificate needs its key; give both")
	case len(c.DNS.TLS.Listen)+len(c.DNS.HTTPS.Listen) > 0 && c.DNS.TLS.Certificate == "":
		return badValue("dns.tls.certificate", "dns.tls.listen and dns.https.listen need a certificate")
	case !strings.HasPrefix(c.DNS.HTTPS.Path, "/") || strings.ContainsAny(c.DNS.HTTPS.Path, "{} "):
		return badValue("dns.https.path", "%q is not a path, such as /dns-query", c.DNS.HTTPS.Path)
	}
	return nil
}

func (c *Config) compileRecords(made *Compiled) error {
	made.DNS.Zone.TTL, made.DNS.Zone.Pods, made.DNS.Zone.EndpointPodNames = uint32(c.DNS.TTL), kubezone.PodMode(c.DNS.Pods), c.DNS.EndpointPodNames
	return nil
}

func (c *Config) compileRanges(made *Compiled) error {
	for _, of := range []struct {
		key    string
		ranges []string
	}{{"dns.serviceCIDRs", c.DNS.ServiceCIDRs}, {"dns.podCIDRs", c.DNS.PodCIDRs}} {
		for i, r := range of.ranges {
			prefix, err := netip.ParsePrefix(r)
			if err != nil || prefix.Bits() == 0 {
				return badItem(of.key, i, "%q is not a range, such as 10.96.0.0/12", r)
			}
			made.DNS.Zone.ReverseRanges = append(made.DNS.Zone.ReverseRanges, prefix)
		}
	}
	return nil
}

func (c *Config) compileNameServer(made *Compiled) error {
	ns, name, _ := strings.Cut(c.DNS.NameServer.Service, "/")
	if ns == "" || name == "" || strings.Contains(name, "/") {
		return badValue("dns.nameServer.service", "%q is not namespace/name", c.DNS.NameServer.Service)
	}
	made.DNS.Zone.DNSService = cluster.Key{Namespace: ns, Name: name}
	for i, a := range c.DNS.NameServer.Addresses {
		addr, err := netip.ParseAddr(a)
		if err != nil || addr.Zone() != "" {
			return badItem("dns.nameServer.addresses", i, "%q is not an address", a)
		}
		made.DNS.Zone.DNSAddresses = append(made.DNS.Zone.DNSAddresses, addr.Unmap())
	}
	if len(c.DNS.NameServer.Addresses) > 0 {
		return nil
	}
	for _, l := range made.DNS.Listen {
		if !l.Addr().IsUnspecified() {
			made.DNS.Zone.DNSAddresses = append(made.DNS.Zone.DNSAddresses, l.Addr().WithZone(""))
		}
	}
	return nil
}

// compileZones comes behind what else the zones are made from, for it makes
// them, to see whether that is possible.
func (c *Config) compileZones(made *Compiled) error {
	for i, z := range c.DNS.Zones {
		name, err := dnsname.Parse(z)
		if err != nil {
			return badItem("dns.zones", i, "%w", err)
		}
		made.DNS.Zone.Zones = append(made.DNS.Zone.Zones, name)
	}
	compiler, err := kubezone.New(made.DNS.Zone)
	if err == nil {
		_, err = compiler.NewDB()
	}
	if err != nil {
		return badValue("dns.zones", "%s", strings.TrimPrefix(err.Error(), "zones "))
	}
	return c.compileAutopath(made, compiler)
}

func (c *Config) compileCookies(made *Compiled) error {
	for i, s := range c.DNS.Cookies.Secrets {
		raw, err := hex.DecodeString(s)
		if err != nil || len(raw) != len(respond.CookieSecret{}) {
			return badItem("dns.cookies.secrets", i, "number %d is not 32 hexadecimal digits", i+1) // a secret is not printed
		}
		made.DNS.CookieSecrets = append(made.DNS.CookieSecrets, respond.CookieSecret(raw))
	}
	return nil
}

func (c *Config) checkIdentity(*Compiled) error {
	for _, text := range []struct {
		key, value string
		limit      int
	}{
		{"dns.identity.nsid", c.DNS.Identity.NSID, respond.MaxNSID},
		{"dns.identity.serverID", c.DNS.Identity.ServerID, maxText},
		{"dns.identity.version", c.DNS.Identity.Version, maxText},
	} {
		if len(text.value) > text.limit {
			return badValue(text.key, "longer than %d octets", text.limit)
		}
	}
	return nil
}

func (c *Config) checkIdle(*Compiled) error {
	if c.DNS.TCP.Idle <= 0 {
		return badValue("dns.tcp.idle", "%s is not more than 0", time.Duration(c.DNS.TCP.Idle))
	}
	return nil
}

func (c *Config) checkKubernetes(*Compiled) error {
	k := &c.Kubernetes
	if c.Manifests != "" && k.Kubeconfig != "" {
		return badValue("kubernetes.kubeconfig", "the cluster is read from manifests already; give one of both")
	}
	if c.Manifests != "" && c.Snapshot.File != "" && !c.Simulate.Enabled {
		return badValue("snapshot.file", "a snapshot is of the Kubernetes API; manifests are there at every start, but for made-up addresses (simulate)")
	}
	for i, ns := range k.Namespaces {
		if ns == "" {
			return badItem("kubernetes.namespaces", i, "an empty name")
		}
		if slices.Contains(k.Namespaces[:i], ns) {
			return badItem("kubernetes.namespaces", i, "%q is given twice", ns)
		}
	}
	return nil
}

func (c *Config) compileAdmin(made *Compiled) error {
	for i, text := range c.Admin.Probes {
		if path, is := strings.CutPrefix(text, "unix:"); is {
			if path == "" || slices.Contains(made.ProbeSockets, path) {
				return badItem("admin.probes", i, "%q is without a path, or given twice", text)
			}
			made.ProbeSockets = append(made.ProbeSockets, path)
			continue
		}
		addr, err := netip.ParseAddrPort(text)
		if err != nil {
			return badItem("admin.probes", i, "%q is not an address and port, such as 0.0.0.0:8080, or unix:PATH", text)
		}
		if addr.Port() != 0 && (text == c.Admin.Listen || slices.Contains(made.Probes, addr)) {
			return badItem("admin.probes", i, "%q is given twice", text)
		}
		made.Probes = append(made.Probes, addr)
	}
	if c.Admin.Listen == "" {
		return nil
	}
	addr, err := netip.ParseAddrPort(c.Admin.Listen)
	if err != nil {
		return badValue("admin.listen", "%q is not an address and port, such as 127.0.0.1:9153", c.Admin.Listen)
	}
	made.Admin = addr
	return nil
}
