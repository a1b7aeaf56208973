package dnsconfig

import "fmt"

// The reasons of the kubelet's events.
const (
	// DNSConfigForming: nameservers or search domains are dropped.
	DNSConfigForming = "DNSConfigForming"
	// MissingClusterDNS: the policy needs the cluster DNS, and the kubelet has no
	// clusterDNS.
	MissingClusterDNS = "MissingClusterDNS"
	// CheckLimitsForResolvConf: the node's resolv.conf exceeds the limits. It is an
	// event of the Node.
	CheckLimitsForResolvConf = "CheckLimitsForResolvConf"
	// FailedCreatePodSandBox: the Pod does not start.
	FailedCreatePodSandBox = "FailedCreatePodSandBox"
)

// Topic is the subject of a Warning.
type Topic int

// The topics.
const (
	Limits              Topic = iota + 1 // the limits of Kubernetes
	NodeLimits                           // the limits of Kubernetes, in the node's resolv.conf
	OlderLimits                          // the limits of some resolvers and runtimes
	NoClusterDNS                         // the kubelet has no clusterDNS
	NoClusterDomain                      // the kubelet has no clusterDomain
	UnknownPolicy                        // a policy that the API server does not accept
	HostNetworkPolicy                    // a policy that acts as Default with hostNetwork
	WindowsPolicy                        // a policy that Windows does not support
	WindowsSearch                        // search domains that Windows does not use
	IgnoredOption                        // an option without effect, or with an unexpected one
	OptionWithoutValue                   // an option that lacks its value
	NonCanonicalAddress                  // an address that is not in canonical form
	TruncatedHostname                    // a hostname that the kubelet truncates
	IgnoredFQDN                          // setHostnameAsFQDN has no effect
	FQDNTooLong                          // setHostnameAsFQDN keeps the Pod from starting
)

// reason returns the reason of the kubelet's event for the topic, or "".
func (t Topic) reason() string {
	switch t {
	case Limits:
		return DNSConfigForming
	case NodeLimits:
		return CheckLimitsForResolvConf
	case NoClusterDNS:
		return MissingClusterDNS
	case FQDNTooLong:
		return FailedCreatePodSandBox
	}
	return ""
}

// Warning describes a setting that is valid but does not do what it seems to do.
type Warning struct {
	Topic Topic
	// Reason is that of the kubelet's event, or "" if there is none.
	Reason string
	// Field is the path of the field, such as "spec.dnsConfig.searches[2]", or "" if the
	// cause is in the node's settings.
	Field   string
	Message string
}

// String returns field and message in one line.
func (w Warning) String() string {
	if w.Field == "" {
		return w.Message
	}
	return w.Field + ": " + w.Message
}

// warner collects Warnings.
type warner struct{ warnings []Warning }

func (w *warner) warn(about Topic, field, format string, args ...any) {
	w.warnings = append(w.warnings,
		Warning{Topic: about, Reason: about.reason(), Field: field, Message: fmt.Sprintf(format, args...)})
}
