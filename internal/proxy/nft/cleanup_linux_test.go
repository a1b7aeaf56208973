package nft_test

import (
	"errors"
	"net"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/proxy/nft"
)

// load runs nft with a script.
func (w *world) load(script string) {
	w.t.Helper()
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Fatalf("nft: %v\n%s", err, out)
	}
}

// TestRemove: the tables are there until the process that owns them ended, and packets are no
// longer delivered then. Tables of others stay.
func TestRemove(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	w.serve()
	w.load("table ip others { chain c { }; }\ntable ip portolan-proxy-next { }\ntable ip6 portolan-proxy-other { }")
	others := w.list()
	table := w.table(nil)
	state := &frontend.State{}
	for _, f := range families {
		state.Frontends = append(state.Frontends, tcp(vip(f, 1), frontend.Plain, endpoints(f, 3)...))
	}
	w.sync(table, state)
	if strings.Contains(w.list(), "portolan-proxy-next") {
		t.Error("a table for replacements is there after a Sync")
	}
	if removed, err := nft.Remove(nft.DefaultName); !errors.Is(err, nft.ErrOwned) || len(removed) > 0 {
		t.Errorf("Remove of tables that are owned = %q, %v", removed, err)
	}
	if a := w.dial(w.pod, podClient[0], netip.AddrPortFrom(vip(0, 1), 80)); a.err != "" {
		t.Errorf("a connection while the table is there: %v", a)
	}
	must(t, table.Close())
	w.load("table ip portolan-proxy-next { }")
	removed, err := nft.Remove(nft.DefaultName)
	want := []string{"table ip portolan-proxy", "table ip portolan-proxy-next", "table ip6 portolan-proxy"}
	if err != nil || !slices.Equal(removed, want) {
		t.Errorf("Remove = %q, %v, want %q", removed, err, want)
	}
	if a := w.dialWithin(200*time.Millisecond, w.pod, podClient[0], netip.AddrPortFrom(vip(0, 1), 80)); a.err == "" {
		t.Errorf("a connection without the table: %v", a)
	}
	if now := w.list(); now != strings.Replace(others, "table ip portolan-proxy-next {\n}\n", "", 1) {
		t.Errorf("after Remove there is\n%s, want\n%s", now, others)
	}
	if removed, err := nft.Remove(nft.DefaultName); err != nil || len(removed) > 0 {
		t.Errorf("Remove of nothing = %q, %v", removed, err)
	}
}

// ofOthers are rules of iptables as a kubelet and other programs make them. KUBE-MARK-MASQ is
// kube-proxy's, and a port mapper's chain jumps to it.
const ofOthers = `
table FAMILY mangle {
	chain KUBE-KUBELET-CANARY { }
	chain KUBE-IPTABLES-HINT { }
}
table FAMILY nat {
	chain KUBE-MARK-MASQ { counter meta mark set mark or 0x4000; }
	chain KUBE-KUBELET-CANARY { }
	chain CNI-HOSTPORT-SETMARK { counter jump KUBE-MARK-MASQ; }
	chain PREROUTING { type nat hook prerouting priority dstnat; counter jump CNI-HOSTPORT-SETMARK; }
	chain OUTPUT { type nat hook output priority -100; }
	chain POSTROUTING { type nat hook postrouting priority srcnat; tcp dport 9 masquerade; }
}
table FAMILY filter {
	chain KUBE-FIREWALL { ct state invalid counter drop; }
	chain KUBE-NWPLCY-ABC { }
	chain INPUT { type filter hook input priority filter; counter jump KUBE-FIREWALL; }
	chain FORWARD { type filter hook forward priority filter; counter jump KUBE-NWPLCY-ABC; tcp dport 9 drop; }
}
table inet others { chain KUBE-SERVICES { }; }
`

// ofKubeProxy are kube-proxy's rules in its modes iptables, ipvs and nftables.
const ofKubeProxy = `
table FAMILY mangle { chain KUBE-PROXY-CANARY { }; }
table FAMILY nat {
	chain KUBE-PROXY-CANARY { }
	chain KUBE-NODE-PORT { }
	chain KUBE-SEP-A { ADDR counter jump KUBE-MARK-MASQ; tcp dport 80 dnat to ENDPOINT; }
	chain KUBE-SVC-A { counter jump KUBE-MARK-MASQ; counter jump KUBE-SEP-A; }
	chain KUBE-EXT-A { counter jump KUBE-MARK-MASQ; goto KUBE-SVC-A; }
	chain KUBE-NODEPORTS { tcp dport 30080 counter jump KUBE-EXT-A; }
	chain KUBE-SERVICES { VIP tcp dport 80 counter jump KUBE-SVC-A; fib daddr type local counter jump KUBE-NODEPORTS; }
	chain KUBE-POSTROUTING { mark and 0x4000 != 0x4000 return; counter masquerade fully-random; }
	chain PREROUTING { counter jump KUBE-SERVICES; }
	chain OUTPUT { counter jump KUBE-SERVICES; }
	chain POSTROUTING { counter jump KUBE-POSTROUTING; }
}
table FAMILY filter {
	chain KUBE-PROXY-FIREWALL { }
	chain KUBE-SERVICES { }
	chain KUBE-EXTERNAL-SERVICES { }
	chain KUBE-FORWARD { ct state invalid drop; }
	chain INPUT { ct state new counter jump KUBE-PROXY-FIREWALL; ct state new counter jump KUBE-EXTERNAL-SERVICES; }
	chain FORWARD { counter jump KUBE-FORWARD; }
}
table FAMILY kube-proxy {
	map services { type inet_service : verdict; elements = { 80 : drop }; }
	chain c { type nat hook prerouting priority dstnat; tcp dport vmap @services; }
}
`

// TestKubeProxy: what kube-proxy left is gone, packets included, and nothing else is.
func TestKubeProxy(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	w.serve()
	addrs := [2][2]string{{"ip saddr", "ip daddr"}, {"ip6 saddr", "ip6 daddr"}}
	script := func(text string, f int) string {
		return strings.NewReplacer(
			"FAMILY", [2]string{"ip", "ip6"}[f], "ADDR", addrs[f][0]+" "+endpoint(f, 1).Addr().String(),
			"ENDPOINT", endpoint(f, 1).String(), "VIP", addrs[f][1]+" "+vip(f, 1).String(),
		).Replace(text)
	}
	for _, f := range families {
		w.load(script(ofOthers, f))
	}
	before := w.list()
	for _, f := range families {
		w.load(script(strings.Replace(ofKubeProxy, "{ 80 : drop }", "{ 81 : drop }", 1), f))
	}
	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "kube-ipvs0"}, PeerName: "kube-ipvs1"}))
	for name, f := range families {
		if a := w.dial(w.pod, podClient[f], netip.AddrPortFrom(vip(f, 1), 80)); a.err != "" {
			t.Errorf("%s: a connection by kube-proxy's rules: %v", name, a)
		}
	}
	left, err := nft.FindKubeProxy()
	must(t, err)
	want := []string{
		"table ip kube-proxy", "table ip6 kube-proxy",
		"4 chains of kube-proxy in table ip filter", "1 chain of kube-proxy in table ip mangle",
		"8 chains of kube-proxy in table ip nat",
		"4 chains of kube-proxy in table ip6 filter", "1 chain of kube-proxy in table ip6 mangle",
		"8 chains of kube-proxy in table ip6 nat",
		"device kube-ipvs0",
	}
	if got := left.List(); !slices.Equal(got, want) {
		t.Errorf("List = %q, want %q", got, want)
	}
	must(t, left.Remove())
	for name, f := range families {
		if a := w.dialWithin(200*time.Millisecond, w.pod, podClient[f], netip.AddrPortFrom(vip(f, 1), 80)); a.err == "" {
			t.Errorf("%s: a connection without kube-proxy's rules: %v", name, a)
		}
	}
	if now := withoutCounts(w.list()); now != withoutCounts(before) {
		t.Errorf("after Remove there is\n%s, want\n%s", now, before)
	}
	if _, err := net.InterfaceByName("kube-ipvs0"); err == nil {
		t.Error("the device is there after Remove")
	}
	left, err = nft.FindKubeProxy()
	must(t, err)
	if got := left.List(); len(got) > 0 {
		t.Errorf("List after Remove = %q", got)
	}
	must(t, left.Remove())
}

// withoutCounts returns a list of rules without what counters counted.
func withoutCounts(list string) string {
	return regexp.MustCompile(`packets \d+ bytes \d+`).ReplaceAllString(list, "")
}
