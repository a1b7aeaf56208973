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
	"portolan.dev/portolan/internal/dns/dnsserver"
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

// Compiled is a configuration in the types of those who use it.
type Compiled struct {
	Listen        []netip.AddrPort
	ListenTLS     []netip.AddrPort
	ListenHTTPS   []netip.AddrPort
	Admin         netip.AddrPort // not valid when there is none
	Probes        []netip.AddrPort
	ProbeSockets  []string // paths
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
	Simulate    simulate.Config
	Webhook     admission.Config
	Node        NodeConfig
	Transfer    CompiledTransfer
	Controller  CompiledController
}

// Compile checks the configuration and gives it in the types of its users.
func (c *Config) Compile() (*Compiled, error) {
	made := new(Compiled)
	steps := []func(*Compiled) error{
		c.compileListen, c.compileRecords, c.compileRanges, c.compileSimulate, c.compileNameServer, c.compileZones,
		c.compileCookies, c.checkIdentity, c.checkLimits, c.checkKubernetes, c.compileAdmin, c.checkLog,
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
	if len(c.Listen)+len(c.TLS.Listen)+len(c.HTTPS.Listen) == 0 {
		return badValue("listen", "no address, nor in tls.listen or https.listen")
	}
	for _, l := range []struct {
		key   string
		texts []string
		made  *[]netip.AddrPort
	}{{"listen", c.Listen, &made.Listen}, {"tls.listen", c.TLS.Listen, &made.ListenTLS}, {"https.listen", c.HTTPS.Listen, &made.ListenHTTPS}} {
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
	case (c.TLS.Certificate == "") != (c.TLS.Key == ""):
		key := "tls.key"
		if c.TLS.Certificate == "" {
			key = "tls.certificate"
		}
		return badValue(key, "a certificate needs its key; give both")
	case len(c.TLS.Listen)+len(c.HTTPS.Listen) > 0 && c.TLS.Certificate == "":
		return badValue("tls.certificate", "tls.listen and https.listen need a certificate")
	case !strings.HasPrefix(c.HTTPS.Path, "/") || strings.ContainsAny(c.HTTPS.Path, "{} "):
		return badValue("https.path", "%q is not a path, such as /dns-query", c.HTTPS.Path)
	}
	return nil
}

func (c *Config) compileRecords(made *Compiled) error {
	if c.TTL < 0 || c.TTL > kubezone.MaxTTL {
		return badValue("ttl", "%d is not between 0 and %d", c.TTL, kubezone.MaxTTL)
	}
	mode := kubezone.PodMode(c.Pods)
	switch mode {
	case kubezone.PodsVerified, kubezone.PodsInsecure, kubezone.PodsDisabled:
	default:
		return badValue("pods", "%q is not verified, insecure or disabled", c.Pods)
	}
	made.Zone.TTL, made.Zone.Pods, made.Zone.EndpointPodNames = uint32(c.TTL), mode, c.EndpointPodNames
	return nil
}

func (c *Config) compileRanges(made *Compiled) error {
	for _, of := range []struct {
		key    string
		ranges []string
	}{{"serviceCIDRs", c.ServiceCIDRs}, {"podCIDRs", c.PodCIDRs}} {
		for i, r := range of.ranges {
			prefix, err := netip.ParsePrefix(r)
			if err != nil || prefix.Bits() == 0 {
				return badItem(of.key, i, "%q is not a range, such as 10.96.0.0/12", r)
			}
			made.Zone.ReverseRanges = append(made.Zone.ReverseRanges, prefix)
		}
	}
	return nil
}

func (c *Config) compileNameServer(made *Compiled) error {
	ns, name, _ := strings.Cut(c.NameServer.Service, "/")
	if ns == "" || name == "" || strings.Contains(name, "/") {
		return badValue("nameServer.service", "%q is not namespace/name", c.NameServer.Service)
	}
	made.Zone.DNSService = cluster.Key{Namespace: ns, Name: name}
	for i, a := range c.NameServer.Addresses {
		addr, err := netip.ParseAddr(a)
		if err != nil || addr.Zone() != "" {
			return badItem("nameServer.addresses", i, "%q is not an address", a)
		}
		made.Zone.DNSAddresses = append(made.Zone.DNSAddresses, addr.Unmap())
	}
	if len(c.NameServer.Addresses) > 0 {
		return nil
	}
	for _, l := range made.Listen {
		if !l.Addr().IsUnspecified() {
			made.Zone.DNSAddresses = append(made.Zone.DNSAddresses, l.Addr().WithZone(""))
		}
	}
	return nil
}

// compileZones comes behind what else the zones are made from, for it makes
// them, to see whether that is possible.
func (c *Config) compileZones(made *Compiled) error {
	for i, z := range c.Zones {
		name, err := dnsname.Parse(z)
		if err != nil {
			return badItem("zones", i, "%w", err)
		}
		made.Zone.Zones = append(made.Zone.Zones, name)
	}
	compiler, err := kubezone.New(made.Zone)
	if err == nil {
		_, err = compiler.NewDB()
	}
	if err != nil {
		return badValue("zones", "%s", strings.TrimPrefix(err.Error(), "zones "))
	}
	return c.compileAutopath(made, compiler)
}

func (c *Config) compileCookies(made *Compiled) error {
	for i, s := range c.Cookies.Secrets {
		raw, err := hex.DecodeString(s)
		if err != nil || len(raw) != len(respond.CookieSecret{}) {
			return badItem("cookies.secrets", i, "number %d is not 32 hexadecimal digits", i+1) // a secret is not printed
		}
		made.CookieSecrets = append(made.CookieSecrets, respond.CookieSecret(raw))
	}
	return nil
}

func (c *Config) checkIdentity(*Compiled) error {
	for _, text := range []struct {
		key, value string
		limit      int
	}{
		{"identity.nsid", c.Identity.NSID, respond.MaxNSID},
		{"identity.serverID", c.Identity.ServerID, maxText},
		{"identity.version", c.Identity.Version, maxText},
	} {
		if len(text.value) > text.limit {
			return badValue(text.key, "longer than %d octets", text.limit)
		}
	}
	return nil
}

func (c *Config) checkLimits(*Compiled) error {
	if c.UDPSize < 512 || c.UDPSize > 4096 {
		return badValue("udpSize", "%d is not between 512 and 4096", c.UDPSize)
	}
	if s := dnsserver.Steering(c.UDPSteering); s != dnsserver.SteerByCPU && s != dnsserver.SteerByHash {
		return badValue("udpSteering", "%q is not cpu or hash", c.UDPSteering)
	}
	if c.TCP.MaxConnections < 1 {
		return badValue("tcp.maxConnections", "%d is less than 1", c.TCP.MaxConnections)
	}
	if c.TCP.MaxInFlight < 1 {
		return badValue("tcp.maxInFlight", "%d is less than 1", c.TCP.MaxInFlight)
	}
	if c.TCP.MaxQueries < 0 {
		return badValue("tcp.maxQueries", "%d is less than 0", c.TCP.MaxQueries)
	}
	if c.TCP.Idle <= 0 {
		return badValue("tcp.idle", "%s is not more than 0", time.Duration(c.TCP.Idle))
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
	for _, n := range []struct {
		key   string
		value int
	}{{"kubernetes.qps", k.QPS}, {"kubernetes.burst", k.Burst}} {
		if n.value < 1 {
			return badValue(n.key, "%d is less than 1", n.value)
		}
	}
	for _, d := range []struct {
		key          string
		value, least Duration
	}{
		{"kubernetes.silence", k.Silence, Duration(time.Second)},
		{"snapshot.settle", c.Snapshot.Settle, 0},
		{"admin.maxStaleness", c.Admin.MaxStaleness, 0},
		{"lameduck", c.Lameduck, 0},
	} {
		if d.value < d.least {
			return badValue(d.key, "%s is less than %s", time.Duration(d.value), time.Duration(d.least))
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

func (c *Config) checkLog(*Compiled) error {
	switch c.Log.Level {
	case "debug", "info", "warn", "error":
	default:
		return badValue("log.level", "%q is not debug, info, warn or error", c.Log.Level)
	}
	switch c.Log.Format {
	case "text", "json":
	default:
		return badValue("log.format", "%q is not text or json", c.Log.Format)
	}
	return nil
}
