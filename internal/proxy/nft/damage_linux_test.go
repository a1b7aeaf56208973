package nft_test

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/proxy/nft"
)

// nftCommand runs a command of nft.
func nftCommand(t *testing.T, command string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "nft", command).CombinedOutput(); err != nil {
		t.Fatalf("nft %s: %v\n%s", command, err, out)
	}
}

// layoutOf returns the chains, rules and declarations of sets of a table.
func layoutOf(t *testing.T, table string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "nft", "-t", "list table ip "+table).CombinedOutput()
	if err != nil {
		t.Fatalf("nft list table ip %s: %v\n%s", table, err, out)
	}
	return string(out)
}

// TestDamagedTable has other programs flush, delete and change parts of a table, as they can with a plain
// one, and with any whose process has ended. One Sync restores it, and connections work again.
func TestDamagedTable(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	w.serve()
	affine := tcp(vip(0, 2), frontend.Plain, endpoints(0, 3)...)
	affine.Affinity = &frontend.Affinity{Group: "shop/web", Timeout: time.Hour}
	local := tcp(vip(0, 3), frontend.ExternalLocal, endpoints(0, 3)...)
	local.Local = local.Endpoints[:1]
	state := &frontend.State{
		Frontends:    []*frontend.Frontend{tcp(vip(0, 1), frontend.Plain, endpoints(0, 3)...), affine, local},
		ServiceCIDRs: prefixes("10.96.0.0/24"),
	}
	const base = "type nat hook prerouting priority"
	damages := []string{
		"flush table ip TABLE",
		"flush chain ip TABLE endpoints-3",
		"flush chain ip TABLE affinity-3600-group-3",
		"flush chain ip TABLE output",
		"insert rule ip TABLE services ip daddr 10.96.0.1 drop",
		"add rule ip TABLE refuse counter",
		"flush chain ip TABLE endpoints-3; add rule ip TABLE endpoints-3 tcp dport 80 dnat to 10.244.1.11:8080",
		"flush chain ip TABLE prerouting; delete chain ip TABLE prerouting",
		"flush chain ip TABLE prerouting; delete chain ip TABLE prerouting; add chain ip TABLE prerouting; " +
			"add rule ip TABLE prerouting jump services",
		"flush chain ip TABLE prerouting; delete chain ip TABLE prerouting; " +
			"add chain ip TABLE prerouting { " + base + " 7; }; add rule ip TABLE prerouting jump services",
		"chain ip TABLE prerouting { policy drop; }",
		"add chain ip TABLE other { " + base + " -90; policy drop; }",
		"flush table ip TABLE; delete set ip TABLE cluster-ips",
		"flush table ip TABLE; delete set ip TABLE cluster-ips; add set ip TABLE cluster-ips { type ipv4_addr; flags timeout; }",
		"flush table ip TABLE; delete map ip TABLE affinity",
		"add table ip TABLE { flags dormant; }",
		"delete table ip TABLE",
		"delete table ip TABLE; add table ip TABLE",
		"flush map ip TABLE services",
		"flush set ip TABLE service-cidrs",
		"flush map ip TABLE endpoints; flush set ip TABLE cluster-ips",
		"flush ruleset",
	}
	for _, kind := range []string{"plain", "owned"} {
		table := w.table(func(c *nft.Config) { c.Name = kind })
		if kind == "plain" {
			table.Plain()
		}
		w.sync(table, state)
		if n := w.sync(table, state); n != 0 {
			t.Errorf("%s: Sync of an unchanged table changed %d elements", kind, n)
		}
		whole := layoutOf(t, kind)
		for _, damage := range damages {
			if kind == "owned" { // its process ends
				table.Close()
				if strings.Contains(damage, "dormant") {
					continue // nft takes the flags of the owner away
				}
			}
			nftCommand(t, strings.ReplaceAll(damage, "TABLE", kind))
			w.sync(table, state)
			if got := layoutOf(t, kind); got != whole {
				t.Errorf("%s, after nft %s: the layout is\n%s", kind, damage, difference(whole, got))
			}
			for i := range 3 {
				if a := w.dial(w.outside, outClient[0], netip.AddrPortFrom(vip(0, 1+i), 80)); a.err != "" {
					t.Errorf("%s, after nft %s: address %d: %s", kind, damage, i+1, a)
				}
			}
			if n := w.sync(table, state); n != 0 {
				t.Errorf("%s, after nft %s: a second Sync changed %d elements", kind, damage, n)
			}
		}
		table.Close()
		nftCommand(t, "delete table ip "+kind)
		nftCommand(t, "delete table ip6 "+kind)
	}
}

// difference returns the first lines that differ.
func difference(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range a {
		if i >= len(b) || a[i] != b[i] {
			return fmt.Sprintf("line %d: %q, want %q", i, strings.Join(b[min(i, len(b)):min(i+3, len(b))], "\n"), a[i])
		}
	}
	return fmt.Sprintf("%d lines more", len(b)-len(a))
}
