// Package resolvconf parses and writes the resolver configuration file.
//
// It implements resolv.conf(5) of the Linux man-pages. Where the page is silent
// it follows glibc (resolv/res_init.c): a keyword starts in the first column
// and is followed by spaces or tabs; text after a nameserver's address or after
// a domain is ignored; a # or ; later in a line starts no comment. Unlike
// glibc, which ignores invalid lines silently, Parse reports each one as a
// Problem.
//
// The limits on nameservers and search domains that resolvers and Kubernetes
// apply are up to the caller.
package resolvconf

import (
	"iter"
	"net/netip"
	"slices"
	"strings"
)

// Config is the content of a resolv.conf. The zero Config is that of an empty
// file. Each slice is in file order and nil if the file has no such line.
type Config struct {
	// Nameservers are the servers to query; the zone of a scoped address is
	// part of it.
	Nameservers []netip.Addr
	// Searches are the search domains as spelled in the file: case and closing
	// dot are kept, and names are not validated.
	Searches []string
	// Options are the resolver options, known or not, each name once.
	Options []Option
}

// Option is one word of an options line.
type Option struct {
	Name string // such as "ndots"; it holds no colon
	// Value is what follows the colon, such as "5"; it is "" for an option
	// without a value, such as "edns0".
	Value string
}

// String returns the option as an options line has it: "ndots:5" or "edns0".
func (o Option) String() string {
	if o.Value == "" {
		return o.Name
	}
	return o.Name + ":" + o.Value
}

// octets returns the length of o.String().
func (o Option) octets() int {
	if o.Value == "" {
		return len(o.Name)
	}
	return len(o.Name) + len(":") + len(o.Value)
}

// String returns the text that AppendTo writes.
func (c Config) String() string {
	return string(c.AppendTo(nil))
}

// AppendTo appends c to b in the kubelet's layout: one line per nameserver,
// then one search line and one options line. Empty lines are omitted, so the
// zero Config appends nothing. Each line ends in a newline.
//
// The text of a Config that Parse returned parses to the same Config, without
// problems. In any other Config, values that would not parse as one word are
// omitted, so that no value can break its line: invalid addresses, names,
// values or zones with a space or control character, empty search domains,
// option names that are empty or contain a colon. Lengths are not checked;
// Parse ignores what exceeds MaxLine and MaxSize.
func (c Config) AppendTo(b []byte) []byte {
	b = c.appendNameservers(b)
	b = appendLine(b, "search", slices.Values(c.Searches))
	return appendLine(b, "options", c.optionWords())
}

// RuntimeText returns c in the layout that containerd and CRI-O write into Pods: the
// search line comes first.
func (c Config) RuntimeText() string {
	b := appendLine(nil, "search", slices.Values(c.Searches))
	return string(appendLine(c.appendNameservers(b), "options", c.optionWords()))
}

// appendNameservers appends a line for each nameserver that can be written.
func (c Config) appendNameservers(b []byte) []byte {
	for _, addr := range c.Nameservers {
		if !addr.IsValid() || addr.Zone() != "" && !isWord(addr.Zone()) {
			continue
		}
		b = append(b, "nameserver "...)
		b = addr.AppendTo(b)
		b = append(b, '\n')
	}
	return b
}

// appendLine appends one line of keyword and words, or nothing if none of the
// words can be written.
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

// optionWords yields the options that have a name.
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

// isWord reports whether s can be written as one word of a line.
func isWord(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r == ' ' || isControl(r) })
}

// isControl reports whether r is an ASCII control character.
func isControl(r rune) bool {
	return r < ' ' || r == 0x7f
}
