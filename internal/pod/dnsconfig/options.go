package dnsconfig

import (
	"fmt"

	"portolan.dev/portolan/internal/dns/resolvconf"
)

// Libc is the resolver that reads the Pod's resolv.conf.
type Libc int

// The resolvers.
const (
	LibcUnknown Libc = iota // the image is not known
	Glibc
	Musl
	GoResolver    // Go's package net without cgo
	WindowsClient // Windows, for all programs
)

// libc returns the Pod's Libc; Windows Pods have only one.
func (p *PodSettings) libc() Libc {
	if p.OS == Windows {
		return WindowsClient
	}
	return p.Libc
}

// unsupported returns why the resolver ignores an option.
func (l Libc) unsupported() string {
	switch l {
	case Glibc:
		return "glibc does not support it"
	case Musl:
		return "musl does not support it"
	case GoResolver:
		return "Go's resolver does not support it"
	case WindowsClient:
		return "Windows does not support it"
	}
	return "no known resolver supports it"
}

// supports reports whether the resolver uses options of this name. LibcUnknown supports
// the options that any of the others supports.
func (l Libc) supports(name string) bool {
	switch l {
	case Glibc:
		return glibcSupports(name)
	case Musl:
		return takesNumber(name)
	case GoResolver:
		return goSupports(name)
	case WindowsClient:
		return false
	}
	return glibcSupports(name) || goSupports(name)
}

// takesNumber reports whether the value of the option is a number. All resolvers support
// these options (musl: src/network/resolvconf.c).
func takesNumber(name string) bool {
	return name == "ndots" || name == "timeout" || name == "attempts"
}

// glibcSupports follows glibc 2.36 (resolv/res_init.c, resolv.h). Options of
// resolv.conf(5) that glibc removed, such as inet6, are unsupported.
func glibcSupports(name string) bool {
	switch name {
	case "debug", "rotate", "edns0", "single-request", "single-request-reopen",
		"no-tld-query", "no_tld_query", "use-vc", "no-reload", "trust-ad", "no-aaaa", "strict-error":
		return true
	}
	return takesNumber(name)
}

// goSupports follows net/dnsconfig_unix.go of Go 1.26.
func goSupports(name string) bool {
	switch name {
	case "rotate", "single-request", "single-request-reopen", "use-vc", "usevc", "tcp", "edns0", "no-reload", "trust-ad":
		return true
	}
	return takesNumber(name)
}

// options warns about the Pod's options that have no effect, or that its resolver
// ignores.
func (f *builder) options(c resolvconf.Config) {
	if f.pod.DNSConfig == nil {
		return
	}
	libc := f.pod.libc()
	for i, given := range f.pod.DNSConfig.Options {
		field := f.pod.field(fmt.Sprintf("dnsConfig.options[%d]", i))
		option := split(given)
		switch {
		case given.Name == "":
			// Validate returns an error for it.
		case option.Name == "" || !isWord(option.String()):
			f.warn(IgnoredOption, field, "%.64q is not one word: it is left out", given.String())
		case option.Name != given.Name:
			f.warn(IgnoredOption, field,
				"the name %.64q contains a value: if the policy has that option, too, the kubelet writes both, in no fixed order",
				given.Name)
		case !libc.supports(option.Name):
			f.warn(IgnoredOption, field, "option %.64q has no effect: %s", option.Name, libc.unsupported())
		case takesNumber(option.Name) && option.Value == "":
			f.warn(OptionWithoutValue, field, "option %q has no effect without a value", option.Name)
		}
	}
	if words := optionsLen(c); words > muslLine && (libc == LibcUnknown || libc == Musl) {
		f.warn(OlderLimits, f.pod.field("dnsConfig.options"),
			"the options line has %d characters: musl ignores lines of more than %d, and with it ndots", words, muslLine)
	}
}

// optionsLen returns the length of the options line without the line feed, in octets.
func optionsLen(c resolvconf.Config) int {
	n := len("options")
	for _, option := range c.Options {
		n += len(" ") + len(option.String())
	}
	return n
}

// windows warns about search domains that Windows does not use (DNS for Services and
// Pods, "DNS resolution on Windows nodes").
func (f *builder) windows(c resolvconf.Config) {
	if len(c.Searches) > 1 {
		f.warn(WindowsSearch, f.searchesField(c.Searches),
			"Windows uses only one search domain, %.253q: names in other domains must be fully qualified", c.Searches[0])
	}
}
