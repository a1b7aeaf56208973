package settings

import (
	"net/netip"

	"portolan.dev/portolan/internal/config/key"
	"portolan.dev/portolan/internal/dns/autopath"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/kubezone"
)

// These are the upper limits for an option with search paths: the API server accepts
// this many paths (validation of PodDNSConfig in Kubernetes), and clients send at most
// 4096 octets over UDP.
const (
	maxSearchPaths  = 32
	maxSearchOctets = 4096
)

// compileAutopath compiles the section autopath. zones makes the SOA record of the
// suffix's zone.
func (d *DNS) compileAutopath(made *Compiled, zones *kubezone.Compiler) (err error) {
	a := &d.Autopath
	made.Autopath = autopath.Config{
		Zones: made.Zone.Zones, Option: uint16(a.Option), MaxPaths: a.MaxPaths, MaxOctets: a.MaxOctets,
	}
	if a.Suffix != "" {
		suffix, err := dnsname.Parse(a.Suffix)
		if err != nil {
			return key.Errorf("dns.autopath.suffix", "%w", err)
		}
		if suffix.IsRoot() {
			return key.Errorf("dns.autopath.suffix", "the root has all names below it; leave it empty for none")
		}
		for _, z := range append([]dnsname.Name{dnsname.ReverseIPv4, dnsname.ReverseIPv6}, made.Zone.Zones...) {
			if suffix.IsSubdomainOf(z) || z.IsSubdomainOf(suffix) {
				return key.Errorf("dns.autopath.suffix", "%s and the zone %s have names in common", suffix, z)
			}
		}
		made.Autopath.Suffix = suffix
	}
	for i, text := range a.HostPaths {
		path, err := dnsname.Parse(text)
		if err != nil {
			return key.ItemErrorf("dns.autopath.hostPaths", i, "%w", err)
		}
		made.Autopath.Host = append(made.Autopath.Host, path)
	}
	for i, text := range a.Clients {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return key.ItemErrorf("dns.autopath.clients", i, "%q is not a range, such as 10.0.0.0/8", text)
		}
		made.Autopath.Clients = append(made.Autopath.Clients, prefix)
	}
	if len(a.HostPaths) > maxSearchPaths {
		return key.Errorf("dns.autopath.hostPaths", "more than %d", maxSearchPaths)
	}
	if code := dnswire.OptionCode(a.Option); code.Known() {
		return key.Errorf("dns.autopath.option", "%d is the option %s", a.Option, code)
	}
	made.AutopathSOA, err = zones.SOA(made.Autopath.Suffix)
	return err
}
