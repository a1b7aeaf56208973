package cli

import (
	"net/netip"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/pod/view"
	"portolan.dev/portolan/internal/support/evidence"
)

// mostFailures is the number of failures that a view shows.
const mostFailures = 20

// failuresOf returns what views show of the failures that a process keeps; nil if it keeps none.
func failuresOf(ring *evidence.Ring) func(view.Involved) []any {
	if ring == nil {
		return nil
	}
	return func(of view.Involved) (last []any) {
		for _, e := range ring.Failures(mostFailures, func(e *evidence.Event) bool { return isAbout(e, &of) }) {
			last = append(last, e)
		}
		return last
	}
}

// isAbout reports whether a Pod or an address is the client or the destination of an event, or a name its
// subject.
func isAbout(e *evidence.Event, of *view.Involved) bool {
	if e.Pod != "" && slices.Contains(of.Pods, e.Pod) || slices.Contains(of.Names, e.Subject) {
		return true
	}
	return e.Client.IsSingleIP() && slices.Contains(of.Addresses, e.Client.Addr().String()) ||
		slices.Contains(of.Addresses, destinationOf(e.Subject))
}

// destinationOf returns the address in a subject such as 10.244.1.7:8080/TCP; empty if there is none.
func destinationOf(subject string) string {
	text, _, _ := strings.Cut(subject, "/")
	if to, err := netip.ParseAddrPort(text); err == nil {
		return to.Addr().String()
	}
	if to, err := netip.ParseAddr(text); err == nil {
		return to.String()
	}
	return ""
}
