package dnsconfig

import (
	"net/netip"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/dns/resolvconf"
)

// lists has the parts of a resolv.conf. Nameservers are text, because the kubelet
// compares them as text.
type lists struct {
	nameservers []string
	searches    []string
	options     []resolvconf.Option
}

// merge adds a Pod's dnsConfig. Nameservers and searches are appended without duplicates.
// An option replaces the one of the same name in place.
func (l *lists) merge(c *DNSConfig) {
	l.nameservers = unique(l.nameservers, c.Nameservers)
	l.searches = unique(l.searches, c.Searches)
	for _, option := range c.Options {
		option = split(option)
		same := func(o resolvconf.Option) bool { return o.Name == option.Name }
		if i := slices.IndexFunc(l.options, same); i >= 0 {
			l.options[i] = option
		} else {
			l.options = append(l.options, option)
		}
	}
}

// split moves the part of an option's name after a colon to its value, which is how the
// written option is parsed.
func split(o resolvconf.Option) resolvconf.Option {
	name, value, _ := strings.Cut(o.String(), ":")
	return resolvconf.Option{Name: name, Value: value}
}

// config returns l as a Config, without the values that a resolv.conf cannot contain.
func (l *lists) config() resolvconf.Config {
	var c resolvconf.Config
	for _, text := range l.nameservers {
		if addr, err := netip.ParseAddr(text); err == nil {
			c.Nameservers = append(c.Nameservers, addr)
		}
	}
	for _, search := range l.searches {
		if isWord(search) {
			c.Searches = append(c.Searches, search)
		}
	}
	for _, option := range l.options {
		if option.Name != "" && isWord(option.String()) {
			c.Options = append(c.Options, option)
		}
	}
	return c
}

// isWord reports whether s is a single word in a line.
func isWord(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f })
}

// unique concatenates two lists without duplicates, keeping the first of each.
func unique(a, b []string) []string {
	seen := make(map[string]bool)
	var list []string
	for _, s := range slices.Concat(a, b) {
		if !seen[s] {
			seen[s] = true
			list = append(list, s)
		}
	}
	return list
}
