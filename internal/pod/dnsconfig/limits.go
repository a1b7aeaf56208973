package dnsconfig

import (
	"fmt"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/dns/resolvconf"
)

// The limits of Kubernetes, for the lists of dnsConfig and for the merged lists
// (DNS for Services and Pods, "DNS search domain list limits").
const (
	MaxNameservers = 3
	MaxSearches    = 32
	// MaxSearchList is the maximum length of all search domains, separated by spaces,
	// in octets.
	MaxSearchList = 2048
	// MaxSearch is the maximum length of one search domain, in octets.
	MaxSearch = 253
)

// The limits of some resolvers and container runtimes.
const (
	// olderSearches and olderSearchList are the limits of glibc up to 2.25
	// (resolv.conf(5)). Old container runtimes have the first one (DNS for Services and
	// Pods).
	olderSearches   = 6
	olderSearchList = 256
	// muslLine is the maximum length of a line in musl, in octets without the line feed
	// (src/network/resolvconf.c). musl ignores longer lines.
	muslLine = 254
)

// CheckNode returns warnings about a node's resolv.conf whose search domains exceed the
// limits, so that Pods lose some. With a cluster domain, ClusterFirst uses three of the
// search domains itself.
func CheckNode(n NodeSettings) []Warning {
	if n.ResolvConf == nil {
		return nil
	}
	var w warner
	searches, room := withoutDots(n.ResolvConf.Searches), MaxSearches
	if n.ClusterDomain != "" {
		room -= 3
	}
	if len(searches) > room {
		w.warn(NodeLimits, "", "the node's resolv.conf has %d search domains: Pods have room for %d of them",
			len(searches), room)
	}
	if i := slices.IndexFunc(searches, isLong); i >= 0 {
		w.warn(NodeLimits, "",
			"the node's resolv.conf has a search domain of %d characters, which begins %.64q: one has at most %d",
			len(searches[i]), searches[i], MaxSearch)
	}
	if n := joinedLen(searches); n > MaxSearchList {
		w.warn(NodeLimits, "",
			"the node's resolv.conf has search domains of %d characters: together they have at most %d", n, MaxSearchList)
	}
	return w.warnings
}

// isLong reports whether a search domain is dropped because of its length.
func isLong(search string) bool { return len(search) > MaxSearch }

// limitNameservers drops the nameservers that exceed the limit.
func (f *builder) limitNameservers(list []string) []string {
	if len(list) <= MaxNameservers {
		return list
	}
	list, rest := list[:MaxNameservers], list[MaxNameservers:]
	f.warn(Limits, f.nameserversField(rest), "%s left out, from %.64q on: a Pod has at most %d",
		counted(len(rest), "nameserver"), rest[0], MaxNameservers)
	return list
}

// limitSearches drops the search domains that exceed the limits, in the kubelet's order:
// their number, the length of one, the length of all.
func (f *builder) limitSearches(list []string) []string {
	if len(list) > MaxSearches {
		rest := list[MaxSearches:]
		list = list[:MaxSearches]
		f.warn(Limits, f.searchesField(rest), "%s left out, from %.64q on: a Pod has at most %d",
			counted(len(rest), "search domain"), rest[0], MaxSearches)
	}
	var kept, long []string
	for _, search := range list {
		if isLong(search) {
			long = append(long, search)
		} else {
			kept = append(kept, search)
		}
	}
	if len(long) > 0 {
		f.warn(Limits, f.searchesField(long), "%s left out, the first begins %.64q: one has at most %d characters",
			counted(len(long), "search domain"), long[0], MaxSearch)
	}
	fit := len(kept)
	for joinedLen(kept[:fit]) > MaxSearchList {
		fit--
	}
	if rest := kept[fit:]; len(rest) > 0 {
		f.warn(Limits, f.searchesField(rest), "%s left out, from %.64q on: together they have at most %d characters",
			counted(len(rest), "search domain"), rest[0], MaxSearchList)
	}
	return kept[:fit]
}

// nameserversField returns the field of the dropped nameservers: that of dnsConfig if the
// last one is there, because those of the Pod come last, else "".
func (f *builder) nameserversField(dropped []string) string {
	if c := f.pod.DNSConfig; c != nil && slices.Contains(c.Nameservers, dropped[len(dropped)-1]) {
		return f.pod.field("dnsConfig.nameservers")
	}
	return ""
}

// searchesField is nameserversField for search domains.
func (f *builder) searchesField(dropped []string) string {
	if c := f.pod.DNSConfig; c != nil && slices.Contains(c.Searches, dropped[len(dropped)-1]) {
		return f.pod.field("dnsConfig.searches")
	}
	return ""
}

// olderLimits warns about search domains that exceed the limits of some resolvers and
// container runtimes.
func (f *builder) olderLimits(c resolvconf.Config) {
	if f.pod.OS == Windows || len(c.Searches) == 0 {
		return
	}
	field := f.searchesField(c.Searches)
	libc := f.pod.libc()
	glibc := libc == LibcUnknown || libc == Glibc
	if n := len(c.Searches); n > olderSearches {
		if glibc {
			f.warn(OlderLimits, field, "%d search domains: glibc 2.25 and earlier searches only the first %d", n, olderSearches)
		}
		f.warn(OlderLimits, field,
			"%d search domains: with containerd 1.5.5 and earlier, or CRI-O 1.21 and earlier, a Pod with more than %d "+
				"may stay pending",
			n, olderSearches)
	}
	if n := joinedLen(c.Searches); n > olderSearchList && glibc {
		f.warn(OlderLimits, field, "search domains of %d characters: glibc 2.25 and earlier takes only the first %d", n,
			olderSearchList)
	}
	if libc == LibcUnknown || libc == Musl {
		if n := len("search ") + joinedLen(c.Searches); n > muslLine {
			f.warn(OlderLimits, field,
				"the search line has %d characters: musl ignores lines of more than %d, so it uses no search domains", n,
				muslLine)
		}
	}
}

// spelling warns about nameservers that are not in canonical form, as the API server
// does.
func (f *builder) spelling() {
	for i, text := range f.pod.DNSConfig.Nameservers {
		if addr, err := netip.ParseAddr(text); err == nil && addr.Is6() && addr.String() != text {
			f.warn(NonCanonicalAddress, f.pod.field(fmt.Sprintf("dnsConfig.nameservers[%d]", i)),
				"IPv6 address %q should be written as %q (RFC 5952)", text, addr)
		}
	}
}

// joinedLen returns the length of the list, separated by spaces, in octets.
func joinedLen(list []string) int {
	n := max(0, len(list)-1)
	for _, s := range list {
		n += len(s)
	}
	return n
}

// counted returns a number with noun and verb: "1 nameserver is", "2 nameservers are".
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun + " is"
	}
	return fmt.Sprintf("%d %ss are", n, noun)
}
