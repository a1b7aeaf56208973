package dnsconfig

import (
	"net/netip"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/dns/resolvconf"
)

// lists are the parts of a resolv.conf while they are formed. Nameservers are
// still text, as the kubelet compares them as text.
type lists struct {
	nameservers []string
	searches    []string
	options     []resolvconf.Option
}

// merge adds a Pod's dnsConfig: nameservers and searches go to the end without
// duplicates, an option replaces that of the same name in its place.
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

// split moves what follows a colon in an option's name to its value, as it is
// written and read.
func split(o resolvconf.Option) resolvconf.Option {
	name, value, _ := strings.Cut(o.String(), ":")
	return resolvconf.Option{Name: name, Value: value}
}

// config is l as a Config, without what has no place in one.
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

// isWord says whether s stands in a line as one word.
func isWord(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f })
}

// unique is one list after the other without duplicates; the first of each
// stays.
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
