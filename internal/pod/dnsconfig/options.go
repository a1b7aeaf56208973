package dnsconfig

import (
	"fmt"

	"portolan.dev/portolan/internal/dns/resolvconf"
)

// Libc is whose resolver reads the Pod's resolv.conf.
type Libc int

const (
	LibcUnknown Libc = iota // the image was not looked at
	Glibc
	Musl
	GoResolver    // that of Go's package net, without cgo
	WindowsClient // that of Windows, whatever the program
)

// libc is the Pod's Libc; Windows has only its own.
func (p *PodSettings) libc() Libc {
	if p.OS == Windows {
		return WindowsClient
	}
	return p.Libc
}

// refusal says that the resolver passes over an option.
func (l Libc) refusal() string {
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

// knows says whether the resolver takes notice of options of this name.
// LibcUnknown knows what one of the others does.
func (l Libc) knows(name string) bool {
	switch l {
	case Glibc:
		return glibcKnows(name)
	case Musl:
		return takesNumber(name)
	case GoResolver:
		return goKnows(name)
	case WindowsClient:
		return false
	}
	return glibcKnows(name) || goKnows(name)
}

// takesNumber says whether the option has a number for its value: those that
// every resolv.conf has (musl: src/network/resolvconf.c).
func takesNumber(name string) bool {
	return name == "ndots" || name == "timeout" || name == "attempts"
}

// glibcKnows goes by glibc (resolv/res_init.c, resolv.h), from 2.36 on: options
// that resolv.conf(5) has and glibc dropped, such as inet6, are unknown.
func glibcKnows(name string) bool {
	switch name {
	case "debug", "rotate", "edns0", "single-request", "single-request-reopen",
		"no-tld-query", "no_tld_query", "use-vc", "no-reload", "trust-ad", "no-aaaa", "strict-error":
		return true
	}
	return takesNumber(name)
}

// goKnows goes by net/dnsconfig_unix.go of Go 1.26.
func goKnows(name string) bool {
	switch name {
	case "rotate", "single-request", "single-request-reopen", "use-vc", "usevc", "tcp", "edns0", "no-reload", "trust-ad":
		return true
	}
	return takesNumber(name)
}

// options warns of the Pod's own options that have no effect, and of those that
// a resolver passes over.
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
			// An error, see Validate.
		case option.Name == "" || !isWord(option.String()):
			f.warn(IgnoredOption, field, "%.64q is not one word: it is left out", given.String())
		case option.Name != given.Name:
			f.warn(IgnoredOption, field, "the name %.64q contains a value: if the policy has that option, too, the kubelet writes both, in no fixed order", given.Name)
		case !libc.knows(option.Name):
			f.warn(IgnoredOption, field, "option %.64q has no effect: %s", option.Name, libc.refusal())
		case takesNumber(option.Name) && option.Value == "":
			f.warn(OptionWithoutValue, field, "option %q has no effect without a value", option.Name)
		}
	}
	if words := optionsLen(c); words > muslLine && (libc == LibcUnknown || libc == Musl) {
		f.warn(OlderLimits, f.pod.field("dnsConfig.options"), "the options line has %d characters: musl ignores lines of more than %d, and with it ndots", words, muslLine)
	}
}

// optionsLen is the length of the options line without its end, in octets.
func optionsLen(c resolvconf.Config) int {
	n := len("options")
	for _, option := range c.Options {
		n += len(" ") + len(option.String())
	}
	return n
}

// windows warns of what Windows makes of c (DNS for Services and Pods, "DNS
// resolution on Windows nodes").
func (f *builder) windows(c resolvconf.Config) {
	if len(c.Searches) > 1 {
		f.warn(WindowsSearch, f.searchesField(c.Searches), "Windows uses only one search domain, %.253q: names in other domains must be fully qualified", c.Searches[0])
	}
}
