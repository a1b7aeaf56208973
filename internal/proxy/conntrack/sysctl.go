package conntrack

import (
	"os"
	"strings"
)

// sysctlLoose has the kernel track connections whose beginning it did not see.
const sysctlLoose = "net/netfilter/nf_conntrack_tcp_loose"

// picksUpTCP reports whether a packet in the middle of a connection without entry makes one.
func picksUpTCP() bool {
	value, err := os.ReadFile("/proc/sys/" + sysctlLoose)
	return err == nil && strings.TrimSpace(string(value)) != "0"
}
