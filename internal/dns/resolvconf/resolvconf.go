// Package resolvconf parses and writes the resolver's configuration file.
//
// It implements resolv.conf(5) of the Linux man-pages. Where the page is
// silent it follows glibc (resolv/res_init.c): a keyword stands in the first
// column and is followed by spaces or tabs; what follows a nameserver's
// address, or a domain's name, is passed over; a # or ; further on in a line
// starts no comment. It differs where glibc is silent about a mistake: such a
// line is a Problem.
//
// How many nameservers and search domains a resolver, or Kubernetes, takes
// notice of is not decided here.
package resolvconf

import (
	"iter"
	"net/netip"
	"slices"
	"strings"
)

// Config is what a resolv.conf says. The zero Config is that of an empty
// file. Each slice is in the order of the file, and nil where it says nothing.
type Config struct {
	// Nameservers are the servers to ask; the zone of a scoped address is
	// part of it.
	Nameservers []netip.Addr
	// Searches are the domains to search, spelt as in the file: neither
	// their case nor a closing dot is changed, nor is it checked that they
	// are domain names.
	Searches []string
	// Options are the resolver's options, known to it or not. No two have
	// the same name.
	Options []Option
}

// Option is one word of an options line.
type Option struct {
	Name string // such as "ndots"; it holds no colon
	// Value is what follows the colon, such as "5"; an option without a
	// value, such as "edns0", has "".
	Value string
}

// String is the option as options lines have it: "ndots:5" or "edns0".
func (o Option) String() string {
	if o.Value == "" {
		return o.Name
	}
	return o.Name + ":" + o.Value
}

// octets is the length of o.String().
func (o Option) octets() int {
	if o.Value == "" {
		return len(o.Name)
	}
	return len(o.Name) + len(":") + len(o.Value)
}

// String is the Config as AppendTo writes it.
func (c Config) String() string {
	return string(c.AppendTo(nil))
}

// AppendTo appends c to b as a resolv.conf, as the kubelet wrote it: a line
// for each nameserver, then one search line and one options line. Lines that
// would be empty are left out, so the zero Config appends nothing; each line
// written ends in a newline.
//
// A Config that Parse gave comes back from its text as it was, without
// problems. In one made otherwise, what would not come back as one word is
// left out, so that no value can break its line: an address that is not valid,
// a name, value or zone with a space or control character, an empty search
// domain, an option's name that is empty or holds a colon. Lengths are not
// checked; Parse passes over what is beyond MaxLine and MaxSize.
func (c Config) AppendTo(b []byte) []byte {
	for _, addr := range c.Nameservers {
		if !addr.IsValid() || addr.Zone() != "" && !isWord(addr.Zone()) {
			continue
		}
		b = append(b, "nameserver "...)
		b = addr.AppendTo(b)
		b = append(b, '\n')
	}
	b = appendLine(b, "search", slices.Values(c.Searches))
	return appendLine(b, "options", c.optionWords())
}

// appendLine appends one line of keyword and words, or nothing if no word can
// be written.
func appendLine(b []byte, keyword string, words iter.Seq[string]) []byte {
	empty := true
	for word := range words {
		if !isWord(word) {
			continue
		}
		if empty {
			b = append(b, keyword...)
			empty = false
		}
		b = append(b, ' ')
		b = append(b, word...)
	}
	if empty {
		return b
	}
	return append(b, '\n')
}

// optionWords gives the options that have a name.
func (c Config) optionWords() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, o := range c.Options {
			if o.Name == "" || strings.Contains(o.Name, ":") {
				continue
			}
			if !yield(o.String()) {
				return
			}
		}
	}
}

// isWord says whether s stands in a line as one word.
func isWord(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r == ' ' || isControl(r) })
}

// isControl says whether r is an ASCII control character.
func isControl(r rune) bool {
	return r < ' ' || r == 0x7f
}
