package podresolv

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

// Warning is something that a Pod's user should know.
type Warning struct {
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

func (w *warner) warn(reason, field, format string, args ...any) {
	w.warnings = append(w.warnings, Warning{Reason: reason, Field: field, Message: fmt.Sprintf(format, args...)})
}
