package nft_test

import (
	"strings"
	"testing"

	"portolan.dev/portolan/internal/policy/nft"
	"portolan.dev/portolan/internal/policy/ruleset"
)

// TestPrefix: what String writes, ParsePrefix reads, and the kernel takes it.
func TestPrefix(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]nft.Prefix{
		"portolan-policy deny in in-5f2a: NetworkPolicy shop/db":         {Event: nft.Denied, Direction: ruleset.Ingress, Chain: "in-5f2a", Reason: "NetworkPolicy shop/db"},
		"portolan-policy audit out out-91cc: a: b":                       {Event: nft.Audited, Direction: ruleset.Egress, Chain: "out-91cc", Reason: "a: b"},
		"portolan-policy unknown in unknown-in: no Pod has this address": {Event: nft.Unknown, Direction: ruleset.Ingress, Chain: "unknown-in", Reason: "no Pod has this address"},
		"portolan-policy deny in in-5f2a: ":                              {Event: nft.Denied, Direction: ruleset.Ingress, Chain: "in-5f2a"},
	} {
		if got := want.String(); got != text {
			t.Errorf("String of %+v is %q, want %q", want, got, text)
		}
		if got, ok := nft.ParsePrefix(text); !ok || got != want {
			t.Errorf("ParsePrefix(%q) = %+v, %v; want %+v", text, got, ok, want)
		}
	}
	for _, text := range []string{
		"", "portolan-policy", "portolan-policy deny", "portolan-policy deny in", "portolan-policy deny in : x",
		"portolan-policy drop in in-1: x", "portolan-policy deny across in-1: x", "other deny in in-1: x",
	} {
		if got, ok := nft.ParsePrefix(text); ok || got != (nft.Prefix{}) {
			t.Errorf("ParsePrefix(%q) = %+v, %v; want none", text, got, ok)
		}
	}
	long := nft.Prefix{Event: nft.Audited, Chain: strings.Repeat("c", 31), Reason: strings.Repeat("r", 80)}
	if got := long.String(); len(got) != 127 {
		t.Errorf("the longest has %d octets, want 127", len(got))
	}
}
