package settings

import (
	"encoding/hex"
	"net/netip"
	"slices"
	"strings"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config/key"
	"portolan.dev/portolan/internal/dns/autopath"
	"portolan.dev/portolan/internal/dns/cache"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/filter"
	"portolan.dev/portolan/internal/dns/forward"
	"portolan.dev/portolan/internal/dns/kubezone"
	"portolan.dev/portolan/internal/dns/localzone"
	"portolan.dev/portolan/internal/dns/querylog"
	"portolan.dev/portolan/internal/dns/respond"
)

// maxText is the maximum length of a character-string, in octets (RFC 1035, section
// 3.3).
const maxText = 255

// Compiled is the section dns in the types of the packages that use it.
type Compiled struct {
	Listen        []netip.AddrPort
	ListenTLS     []netip.AddrPort
	ListenHTTPS   []netip.AddrPort
	Zone          kubezone.Config
	LocalZones    localzone.Config // without its SOA
	Views         []respond.View
	ServiceRanges []netip.Prefix
	PodRanges     []netip.Prefix
	CookieSecrets []respond.CookieSecret
	Routes        []forward.Route
	Cache         cache.Config
	Rules         filter.Config
	Autopath      autopath.Config
	// AutopathSOA is the SOA record of names below Autopath.Suffix.
	AutopathSOA dnswire.SOA
	RateLimit   filter.RateLimit
	QueryLog    querylog.Config
	Transfer    CompiledTransfer
}

// Compile checks the section, except for the checks in Keys, and returns it in the
// types of the packages that use it. Its error is a *key.Error.
func (d *DNS) Compile() (Compiled, error) {
	var made Compiled
	steps := []func(*Compiled) error{
		d.compileListen, d.compileRecords, d.compileRanges, d.compileNameServer, d.compileZones, d.compileCookies,
		d.checkIdentity, d.checkIdle, d.compileForward, d.compileCache, d.compileRules, d.compileQueryLog,
		d.compileTransfer,
	}
	for _, step := range steps {
		if err := step(&made); err != nil {
			return Compiled{}, err
		}
	}
	return made, nil
}

func (d *DNS) compileListen(made *Compiled) error {
	if len(d.Listen)+len(d.TLS.Listen)+len(d.HTTPS.Listen) == 0 {
		return key.Errorf("dns.listen", "no address, nor in dns.tls.listen or dns.https.listen")
	}
	for _, l := range []struct {
		key   string
		texts []string
		made  *[]netip.AddrPort
	}{
		{"dns.listen", d.Listen, &made.Listen},
		{"dns.tls.listen", d.TLS.Listen, &made.ListenTLS},
		{"dns.https.listen", d.HTTPS.Listen, &made.ListenHTTPS},
	} {
		for i, text := range l.texts {
			addr, err := netip.ParseAddrPort(text)
			if err != nil {
				return key.ItemErrorf(l.key, i, "%q is not an address and port, such as 127.0.0.1:1053 or [::]:53", text)
			}
			addr = netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
			if addr.Port() != 0 && slices.Contains(*l.made, addr) {
				return key.ItemErrorf(l.key, i, "%q is given twice", text)
			}
			*l.made = append(*l.made, addr)
		}
	}
	return d.checkTLS()
}

// checkTLS checks the settings that listeners over TLS need.
func (d *DNS) checkTLS() error {
	switch {
	case (d.TLS.Certificate == "") != (d.TLS.Key == ""):
		missing := "dns.tls.key"
		if d.TLS.Certificate == "" {
			missing = "dns.tls.certificate"
		}
		return key.Errorf(missing, "a certificate needs its key; give both")
	case len(d.TLS.Listen)+len(d.HTTPS.Listen) > 0 && d.TLS.Certificate == "":
		return key.Errorf("dns.tls.certificate", "dns.tls.listen and dns.https.listen need a certificate")
	case !strings.HasPrefix(d.HTTPS.Path, "/") || strings.ContainsAny(d.HTTPS.Path, "{} "):
		return key.Errorf("dns.https.path", "%q is not a path, such as /dns-query", d.HTTPS.Path)
	}
	return nil
}

func (d *DNS) compileRecords(made *Compiled) error {
	made.Zone.TTL, made.Zone.Pods = uint32(d.TTL), kubezone.PodMode(d.Pods)
	made.Zone.EndpointPodNames = d.EndpointPodNames
	return nil
}

func (d *DNS) compileRanges(made *Compiled) (err error) {
	if made.ServiceRanges, err = parseRanges("dns.serviceCIDRs", d.ServiceCIDRs); err != nil {
		return err
	}
	if made.PodRanges, err = parseRanges("dns.podCIDRs", d.PodCIDRs); err != nil {
		return err
	}
	made.Zone.ReverseRanges = slices.Concat(made.ServiceRanges, made.PodRanges)
	return nil
}

func parseRanges(path string, texts []string) (ranges []netip.Prefix, err error) {
	for i, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		if err != nil || prefix.Bits() == 0 {
			return nil, key.ItemErrorf(path, i, "%q is not a range, such as 10.96.0.0/12", text)
		}
		ranges = append(ranges, prefix)
	}
	return ranges, nil
}

func (d *DNS) compileNameServer(made *Compiled) error {
	ns, name, err := key.Object("dns.nameServer.service", d.NameServer.Service)
	if err != nil {
		return err
	}
	made.Zone.DNSService = cluster.Key{Namespace: ns, Name: name}
	for i, a := range d.NameServer.Addresses {
		addr, err := netip.ParseAddr(a)
		if err != nil || addr.Zone() != "" {
			return key.ItemErrorf("dns.nameServer.addresses", i, "%q is not an address", a)
		}
		made.Zone.DNSAddresses = append(made.Zone.DNSAddresses, addr.Unmap())
	}
	if len(d.NameServer.Addresses) > 0 {
		return nil
	}
	for _, l := range made.Listen {
		if !l.Addr().IsUnspecified() {
			made.Zone.DNSAddresses = append(made.Zone.DNSAddresses, l.Addr().WithZone(""))
		}
	}
	return nil
}

// compileZones is the last step for Compiled.Zone. It makes the zones to check that
// they are valid.
func (d *DNS) compileZones(made *Compiled) error {
	for i, z := range d.Zones {
		name, err := dnsname.Parse(z)
		if err != nil {
			return key.ItemErrorf("dns.zones", i, "%w", err)
		}
		made.Zone.Zones = append(made.Zone.Zones, name)
	}
	if d.Multicluster != "" {
		name, err := dnsname.Parse(d.Multicluster)
		if err != nil {
			return key.Errorf("dns.multicluster", "%w", err)
		}
		made.Zone.Multicluster = name
	}
	if err := d.External.compile(&made.Zone.External); err != nil {
		return err
	}
	compiler, err := kubezone.New(made.Zone)
	if err == nil {
		_, err = compiler.NewDB()
	}
	if err != nil {
		return key.Errorf("dns.zones", "%s", strings.TrimPrefix(err.Error(), "zones "))
	}
	if err := d.compileLocalZones(made, compiler); err != nil {
		return err
	}
	served := compiler.Apexes()
	for _, source := range made.LocalZones.Sources {
		served = append(served, source.Apex)
	}
	if err := d.compileViews(made, served); err != nil {
		return err
	}
	return d.compileAutopath(made, compiler)
}

func (d *DNS) compileCookies(made *Compiled) error {
	for i, s := range d.Cookies.Secrets {
		raw, err := hex.DecodeString(s)
		if err != nil || len(raw) != len(respond.CookieSecret{}) {
			return key.ItemErrorf(
				"dns.cookies.secrets", i, "number %d is not 32 hexadecimal digits", i+1,
			) // the secret is not printed
		}
		made.CookieSecrets = append(made.CookieSecrets, respond.CookieSecret(raw))
	}
	return nil
}

func (d *DNS) checkIdentity(*Compiled) error {
	for _, text := range []struct {
		key, value string
		limit      int
	}{
		{"dns.identity.nsid", d.Identity.NSID, respond.MaxNSID},
		{"dns.identity.serverID", d.Identity.ServerID, maxText},
		{"dns.identity.version", d.Identity.Version, maxText},
	} {
		if len(text.value) > text.limit {
			return key.Errorf(text.key, "longer than %d octets", text.limit)
		}
	}
	return nil
}

func (d *DNS) checkIdle(*Compiled) error {
	if d.TCP.Idle <= 0 {
		return key.Errorf("dns.tcp.idle", "%s is not more than 0", time.Duration(d.TCP.Idle))
	}
	return nil
}
