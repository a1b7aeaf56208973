package dnsconfig

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/dns/resolvconf"
)

// ErrUnknown is the error of Compare if nothing is known to compare with.
var ErrUnknown = errors.New("the node's resolv.conf, which the Pod has, is not known")

// Compare returns the differences between a computed resolv.conf and the one that a Pod
// has, by content: the order of nameservers and search domains counts, that of lines and
// options does not. The part that is not known of the computed one is not compared; if it
// is Everything, the error is ErrUnknown.
func Compare(computed Resolution, live resolvconf.Config) (differences []string, err error) {
	if computed.Unknown == Everything {
		return nil, ErrUnknown
	}
	differ := func(what string, computed, live []string) {
		if !slices.Equal(computed, live) {
			differences = append(
				differences,
				fmt.Sprintf("%s: the Pod has %s, computed is %s", what, words(live), words(computed)),
			)
		}
	}
	differ("nameserver", addrTexts(computed.Config), addrTexts(live))
	searches, has := computed.Config.Searches, live.Searches
	if computed.Unknown == LastSearches {
		has = has[:min(len(has), len(searches))]
	}
	differ("search", searches, has)
	differ("options", optionTexts(computed.Config), optionTexts(live))
	return differences, nil
}

func words(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, " ")
}

func addrTexts(c resolvconf.Config) (texts []string) {
	for _, addr := range c.Nameservers {
		texts = append(texts, addr.String())
	}
	return texts
}

// optionTexts returns the options, sorted.
func optionTexts(c resolvconf.Config) (texts []string) {
	for _, o := range c.Options {
		texts = append(texts, o.String())
	}
	slices.Sort(texts)
	return texts
}
