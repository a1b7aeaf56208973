package attack

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/internal/cni/attach"
)

// TestManyNodes: 10,000 Nodes with names as long as possible, of which many claim what others have, or what no node can
// have, leave the agent within its limit, and 250 Pods start beside them.
func TestManyNodes(t *testing.T) {
	var b strings.Builder
	b.WriteString(networkCluster)
	lies := []string{
		"127.0.0.1", "'::'", "224.0.0.1", "192.0.2.1", "10.244.0.7", "255.255.255.255", "0.0.0.0", "169.254.1.1",
		"10.96.0.1", "'::ffff:192.0.2.9'", "fe80::1", "not an address",
	}
	ranges := []string{
		"0.0.0.0/0", "'::/0'", "192.0.2.0/24", "10.244.0.0/15", "127.0.0.0/8", "10.244.0.0/16", "224.0.0.0/24", "10.96.0.0/12",
		"fd00:10:244::/48", "nothing",
	}
	const many = 10_000
	for i := range many {
		name := fmt.Sprintf("node-%d.", i) + strings.Repeat(strings.Repeat("x", 59)+".", 4)
		addr, podCIDR := fmt.Sprintf("198.51.%d.%d", i>>8, i&255), fmt.Sprintf("10.%d.%d.0/24", i>>8&127, i&255)
		if i%10 == 0 {
			addr, podCIDR = lies[i/10%len(lies)], ranges[i/10%len(ranges)]
		}
		fmt.Fprintf(&b, "---\napiVersion: v1\nkind: Node\nmetadata: {name: %s%s, creationTimestamp: '2026-01-01T00:00:00Z'}\n"+
			"spec: {podCIDRs: [%s]}\nstatus: {addresses: [{type: InternalIP, address: %s}]}\n",
			name, strings.Repeat("y", 253-len(name)), podCIDR, addr)
	}
	begin := time.Now()
	n := startNetwork(t, b.String())
	t.Logf("it was ready after %s", time.Since(begin))
	n.mustServe(t, "with 10,000 Nodes")
	wantOwnRoutes(t)
	var pods []attach.Request
	begin = time.Now()
	for i := range 250 {
		r := n.pod(t, fmt.Sprint("pod-", i))
		if _, err := n.call(r); err != nil {
			n.fatal(err.Error())
		}
		pods = append(pods, r)
	}
	t.Logf("250 Pods took %s", time.Since(begin))
	n.mustServe(t, "with 250 Pods")
	for _, r := range pods {
		r.Verb = attach.Release
		if _, err := n.call(r); err != nil {
			n.fatal(err.Error())
		}
	}
}

// wantOwnRoutes fails the test unless the agent's routes leave alone what the node reaches without it: there are some,
// and none to everything, or to what overlaps the range of the uplink, loopback or multicast.
func wantOwnRoutes(t *testing.T) {
	t.Helper()
	routes := 0
	for _, family := range []string{"-4", "-6"} {
		out, err := exec.CommandContext(t.Context(), "ip", "-json", family, "route", "show", "table", "all",
			"proto", "80").Output()
		if err != nil {
			t.Fatal(err)
		}
		var list []struct{ Dst string }
		if err := json.Unmarshal(out, &list); err != nil {
			t.Fatal(err)
		}
		routes += len(list)
		for _, r := range list {
			if why := foreign(r.Dst); why != "" {
				t.Errorf("the agent has a route to %s, %s", r.Dst, why)
			}
		}
	}
	t.Logf("%d routes", routes)
	if routes < 1000 {
		t.Errorf("the agent has %d routes, and thousands of Nodes have a range of their own", routes)
	}
}

// foreign returns why no agent may have a route to a destination, as ip-route(8) has it.
func foreign(to string) string {
	if to == "default" {
		return "which is everything"
	}
	p, err := netip.ParsePrefix(to)
	if err != nil {
		addr, err := netip.ParseAddr(to)
		if err != nil {
			return err.Error()
		}
		p = netip.PrefixFrom(addr, addr.BitLen())
	}
	for _, taken := range []string{"192.0.2.0/24", "2001:db8::/64", "127.0.0.0/8", "224.0.0.0/4", "ff00::/8"} {
		if p.Overlaps(netip.MustParsePrefix(taken)) {
			return "which is a part of " + taken
		}
	}
	return ""
}
