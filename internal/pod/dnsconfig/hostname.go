package dnsconfig

import (
	"fmt"
	"strings"
)

const (
	maxHostname = 63 // octets; the kubelet cuts off what is beyond
	// maxFQDN is the octets that the kernel has for a hostname on Linux
	// (struct utsname).
	maxFQDN = 64
)

// Hostname is what a Pod's programs see of its own name.
type Hostname struct {
	// Kernel is what hostname prints, and HOSTNAME holds: short, or the FQDN
	// with setHostnameAsFQDN. A Pod in the node's network has the node's, ""
	// where that is not known.
	Kernel string
	// FQDN is what hostname --fqdn prints, as the Pod's /etc/hosts has it:
	// with a subdomain hostname.subdomain.namespace.svc.clusterdomain, else
	// Kernel.
	FQDN     string
	Warnings []Warning
}

// FQDNError says that a Pod with setHostnameAsFQDN does not start, in the
// kubelet's words.
type FQDNError struct {
	Field string // such as "spec.setHostnameAsFQDN"
	FQDN  string
}

func (e *FQDNError) Error() string {
	return fmt.Sprintf("failed to construct FQDN from pod hostname and cluster domain, FQDN %s is too long (%d characters is the max, %d characters requested)",
		e.FQDN, maxFQDN, len(e.FQDN))
}

// Warning is the error as one, of the event that the kubelet emits.
func (e *FQDNError) Warning() Warning {
	return Warning{Topic: FQDNTooLong, Reason: FailedCreatePodSandBox, Field: e.Field, Message: e.Error()}
}

// HostnameOf computes a Pod's hostname. An error is an *FQDNError; the Hostname
// beside it is the one that the Pod would have without setHostnameAsFQDN.
func HostnameOf(p PodSettings, n NodeSettings) (Hostname, error) {
	var w warner
	if p.HostNetwork {
		if p.SetHostnameAsFQDN {
			w.warn(IgnoredFQDN, p.field("setHostnameAsFQDN"), "it has no effect with hostNetwork: the Pod has the node's hostname")
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

// shortHostname is the hostname without its domain, cut to what the kernel
// takes.
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
