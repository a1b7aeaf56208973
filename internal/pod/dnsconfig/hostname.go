package dnsconfig

import (
	"fmt"
	"strings"
)

const (
	// maxHostname is the octets to which the kubelet truncates a hostname.
	maxHostname = 63
	// maxFQDN is the maximum octets of a hostname on Linux (struct utsname).
	maxFQDN = 64
)

// Hostname has the names of a Pod as its programs see them.
type Hostname struct {
	// Kernel is the output of hostname(1) and the value of HOSTNAME: the short name,
	// or with setHostnameAsFQDN the FQDN. With hostNetwork it is the node's hostname, ""
	// if that is not known.
	Kernel string
	// FQDN is the output of hostname --fqdn, from the Pod's /etc/hosts: with a
	// subdomain hostname.subdomain.namespace.svc.clusterdomain, else Kernel.
	FQDN     string
	Warnings []Warning
}

// FQDNError is the kubelet's error for a Pod with setHostnameAsFQDN that does not start
// because its FQDN is too long.
type FQDNError struct {
	Field string // such as "spec.setHostnameAsFQDN"
	FQDN  string
}

func (e *FQDNError) Error() string {
	return fmt.Sprintf("failed to construct FQDN from pod hostname and cluster domain, FQDN %s is too long (%d "+
		"characters is the max, %d characters requested)",
		e.FQDN, maxFQDN, len(e.FQDN))
}

// Warning returns the error as a warning with the reason of the kubelet's event.
func (e *FQDNError) Warning() Warning {
	return Warning{Topic: FQDNTooLong, Reason: FailedCreatePodSandBox, Field: e.Field, Message: e.Error()}
}

// HostnameOf computes the hostname of a Pod. Its error is an *FQDNError; the Hostname is
// then the one without setHostnameAsFQDN.
func HostnameOf(p PodSettings, n NodeSettings) (Hostname, error) {
	var w warner
	if p.HostNetwork {
		if p.SetHostnameAsFQDN {
			w.warn(IgnoredFQDN, p.field("setHostnameAsFQDN"),
				"it has no effect with hostNetwork: the Pod has the node's hostname")
		}
		return Hostname{Kernel: n.Hostname, FQDN: n.Hostname, Warnings: w.warnings}, nil
	}
	name := p.shortHostname(&w)
	h := Hostname{Kernel: name, FQDN: name}
	if p.Subdomain != "" && p.HostnameOverride == nil {
		h.FQDN = name + "." + p.Subdomain + "." + p.namespace() + ".svc." + n.ClusterDomain
	}
	var err error
	switch {
	case !p.SetHostnameAsFQDN:
	case h.FQDN == name:
		w.warn(IgnoredFQDN, p.field("setHostnameAsFQDN"), "it has no effect: the Pod has no FQDN without a subdomain")
	case len(h.FQDN) > maxFQDN:
		err = &FQDNError{Field: p.field("setHostnameAsFQDN"), FQDN: h.FQDN}
	default:
		h.Kernel = h.FQDN
	}
	h.Warnings = w.warnings
	return h, err
}

// shortHostname returns the hostname without its domain, truncated to maxHostname.
func (p *PodSettings) shortHostname(w *warner) string {
	name, field := p.Name, "metadata.name"
	switch {
	case p.HostnameOverride != nil:
		name, field = *p.HostnameOverride, p.field("hostnameOverride")
	case p.Hostname != "":
		name, field = p.Hostname, p.field("hostname")
	}
	if len(name) <= maxHostname {
		return name
	}
	cut := strings.TrimRight(name[:maxHostname], "-.")
	w.warn(TruncatedHostname, field, "the kubelet truncates the Pod's hostname to %d characters: %s", len(cut), cut)
	return cut
}
