package dnsconfig

import "fmt"

// Reasons of events, as the kubelet names them.
const (
	// DNSConfigForming: nameservers or search domains are left out.
	DNSConfigForming = "DNSConfigForming"
	// MissingClusterDNS: the policy needs the cluster's DNS, and the kubelet
	// knows none.
	MissingClusterDNS = "MissingClusterDNS"
	// CheckLimitsForResolvConf: the node's resolv.conf is beyond the limits.
	// It is an event of the Node.
	CheckLimitsForResolvConf = "CheckLimitsForResolvConf"
	// FailedCreatePodSandBox: the Pod does not start.
	FailedCreatePodSandBox = "FailedCreatePodSandBox"
)

// Topic is what a Warning is about.
type Topic int

// The topics.
const (
	Limits              Topic = iota + 1 // Kubernetes' limits
	NodeLimits                           // the same, of the node's resolv.conf
	OlderLimits                          // limits that resolvers and runtimes have
	NoClusterDNS                         // the kubelet knows no address of it
	NoClusterDomain                      // the kubelet knows none
	UnknownPolicy                        // a policy that the API server does not take
	HostNetworkPolicy                    // a policy that is another one with hostNetwork
	WindowsPolicy                        // a policy that Windows does not have
	WindowsSearch                        // search domains that Windows does not search
	IgnoredOption                        // an option that has no effect, or not the expected one
	OptionWithoutValue                   // an option that needs a value, without
	NonCanonicalAddress                  // an address that should be written as otherwise
	TruncatedHostname                    // a hostname that is cut
	IgnoredFQDN                          // setHostnameAsFQDN has no effect
	FQDNTooLong                          // setHostnameAsFQDN keeps the Pod from starting
)

// reason is that of the event that goes with the topic.
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

// Warning is something that a Pod's user should know.
type Warning struct {
	Topic Topic
	// Reason is that of the event that the kubelet emits, "" if it emits
	// none.
	Reason string
	// Field is the path of the field that it is about, such as
	// "spec.dnsConfig.searches[2]"; "" if it comes from the node's settings.
	Field   string
	Message string
}

// String is the warning in one line.
func (w Warning) String() string {
	if w.Field == "" {
		return w.Message
	}
	return w.Field + ": " + w.Message
}

// warner collects warnings.
type warner struct{ warnings []Warning }

func (w *warner) warn(about Topic, field, format string, args ...any) {
	w.warnings = append(w.warnings, Warning{Topic: about, Reason: about.reason(), Field: field, Message: fmt.Sprintf(format, args...)})
}
