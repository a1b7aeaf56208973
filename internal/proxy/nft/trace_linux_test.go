package nft_test

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/proxy/nft"
	"portolan.dev/portolan/internal/proxy/trace"
	"portolan.dev/portolan/test/namespace"
)

// TestTrace follows packets that are delivered, rejected, and dropped by the proxy, by another
// program and by the kernel, and checks that the tables of the trace go with it.
func TestTrace(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	w.serve()
	state := &frontend.State{ServiceCIDRs: prefixes("10.96.0.0/24", "fd00:96::/112")}
	names := trace.Names{Services: make(map[frontend.Address]string), Pods: make(map[netip.Addr]string)}
	for _, f := range families {
		dropped, outside := tcp(vip(f, 5), frontend.Plain), tcp(vip(f, 6), frontend.ExternalLocal, endpoint(f, 1))
		dropped.Empty = frontend.Drop
		limited := tcp(vip(f, 7), frontend.External, endpoint(f, 1))
		limited.Sources = []netip.Prefix{netip.PrefixFrom(podClient[f], podClient[f].BitLen())}
		state.Frontends = append(
			state.Frontends, tcp(vip(f, 1), frontend.Plain, endpoint(f, 1)), tcp(vip(f, 2), frontend.External, endpoint(f, 2)),
			tcp(vip(f, 3), frontend.Plain), tcp(vip(f, 4), frontend.Plain, endpoint(f, 3)), dropped, outside, limited,
		)
		names.Services[tcp(vip(f, 1), frontend.Plain).Address] = "Service shop/web"
		names.Pods[endpoint(f, 1).Addr()] = "Pod shop/web-1"
	}
	w.sync(w.table(nil), state)
	for _, command := range []string{
		"nft add table inet firewall",
		"nft add chain inet firewall forward { type filter hook forward priority 0; }",
		"nft add rule inet firewall forward ip daddr 10.244.1.13 drop",
		"nft add rule inet firewall forward ip6 daddr fd00:244:1::13 drop",
		"ip route add blackhole 198.18.0.0/24", "ip route add blackhole fd00:18::/64",
	} {
		words := strings.Fields(command)
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
	blackhole, node := addrs("198.18.0.1", "fd00:18::1"), addrs("10.244.2.1", "fd00:244:2::1")
	for name, f := range families {
		family := nft.FamilyOf(vip(f, 1)).String()
		proxyTable := family + " " + nft.DefaultName
		masqueraded := ", masqueraded as " + inner[f].String() + "\n"
		for claim, c := range map[string]struct {
			from   *namespace.Network
			source netip.Addr
			to     netip.Addr
			port   uint16
			want   []string // parts of the text
		}{
			"a Pod to a cluster IP": {
				from: w.pod, source: podClient[f], to: vip(f, 1), want: []string{
					"/tcp (Service shop/web), in through client\n  " + proxyTable + ": prerouting → services → endpoints-1: accept\n",
					"  sent to " + endpoint(f, 1).String() + "/tcp (Pod shop/web-1) through servers, with its own source\n",
				},
			},
			"a Pod to an external address": {from: w.pod, source: podClient[f], to: vip(f, 2), want: []string{
				"services → masquerade-1 → endpoints-1: accept\n", "sent to " + endpoint(f, 2).String() + "/tcp through servers" + masqueraded,
			}},
			"the node to a cluster IP": {source: nodeOutside[f], to: vip(f, 1), want: []string{
				"/tcp (Service shop/web)\n  " + proxyTable + ": output → services → endpoints-1: accept\n", masqueraded,
			}},
			"no endpoint":                    {from: w.pod, source: podClient[f], to: vip(f, 3), want: []string{"rejected by " + proxyTable + ", chain refuse: no endpoint\n"}},
			"no such port":                   {from: w.pod, source: podClient[f], to: vip(f, 1), port: 81, want: []string{"rejected by " + proxyTable + ", chain refuse: the cluster IP has no such port\n"}},
			"no such address":                {from: w.pod, source: podClient[f], to: vip(f, 9), want: []string{"dropped by " + proxyTable + ", chain postrouting: no Service has this cluster IP\n"}},
			"no endpoint on the node":        {from: w.pod, source: podClient[f], to: vip(f, 5), want: []string{"dropped by " + proxyTable + ", chain services: no endpoint on this node, and the traffic policy is Local\n"}},
			"no endpoint for outside":        {from: w.outside, source: outClient[f], to: vip(f, 6), want: []string{"dropped by " + proxyTable + ", chain external-local-1: no endpoint on this node, and the traffic policy is Local\n"}},
			"source ranges":                  {from: w.outside, source: outClient[f], to: vip(f, 7), want: []string{"dropped by " + proxyTable + ", chain limited: loadBalancerSourceRanges exclude the client\n"}},
			"dropped by another program":     {from: w.pod, source: podClient[f], to: vip(f, 4), want: []string{"services → endpoints-1: accept\n", "dropped by inet firewall, chain forward, rule handle "}},
			"lost by the kernel":             {from: w.pod, source: podClient[f], to: blackhole[f], want: []string{"\n  lost: no rule dropped it"}},
			"received by the node":           {from: w.pod, source: podClient[f], to: node[f], port: 9, want: []string{"received by the node at ", "its destination unchanged, with its own source\n"}},
			"sent to an endpoint without us": {from: w.pod, source: podClient[f], to: endpoint(f, 1).Addr(), port: serverPort, want: []string{"its destination unchanged, with its own source\n"}},
		} {
			port := c.port
			if port == 0 {
				port = 80
			}
			at := frontend.Address{Addr: c.to, Protocol: frontend.TCP, Port: port}
			got := w.trace(at, c.source, names, func() { w.dialWithin(200*time.Millisecond, c.from, c.source, netip.AddrPortFrom(c.to, port)) })
			for _, want := range c.want {
				if !strings.Contains(got, want) {
					t.Errorf("%s, %s: %s lacks %q", name, claim, got, want)
				}
			}
		}
	}
	if out, err := exec.Command("nft", "list", "tables").CombinedOutput(); err != nil || strings.Contains(string(out), "trace") {
		t.Errorf("after the traces: %v\n%s", err, out)
	}
}

// TestTraceExcept: with excepted sources, neither their packets nor the node's are followed, and a
// destination without a port is all ports.
func TestTraceExcept(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	w.serve()
	all := prefixes("0.0.0.0/0", "::/0")
	var state frontend.State
	for _, f := range families {
		state.Frontends = append(state.Frontends, tcp(vip(f, 1), frontend.Plain, endpoint(f, 1)))
	}
	w.sync(w.table(nil), &state)
	for name, f := range families {
		to := netip.AddrPortFrom(vip(f, 1), 80)
		got := w.follow(nft.TraceConfig{
			Sources: all, Except: []netip.Prefix{netip.PrefixFrom(podClient[f], podClient[f].BitLen()-8).Masked()},
			To: []frontend.Address{{Addr: vip(f, 1)}},
		}, trace.Names{}, func() {
			w.dialWithin(500*time.Millisecond, w.pod, podClient[f], to)
			w.dialWithin(500*time.Millisecond, nil, nodeOutside[f], to)
			w.dialWithin(500*time.Millisecond, w.outside, outClient[f], to)
		})
		if want := netip.AddrPortFrom(outClient[f], 0).String(); !strings.HasPrefix(got, strings.TrimSuffix(want, "0")) {
			t.Errorf("%s: the first packet that was followed: %s, want one from %s", name, got, outClient[f])
		}
	}
}

// trace follows the first packet from a source to an address while send runs, and returns its
// path.
func (w *world) trace(to frontend.Address, source netip.Addr, names trace.Names, send func()) (path string) {
	w.t.Helper()
	return w.follow(nft.TraceConfig{
		Sources: []netip.Prefix{netip.PrefixFrom(source, source.BitLen())}, To: []frontend.Address{to},
	}, names, send)
}

// follow follows the first of the packets while send runs, and returns its path.
func (w *world) follow(packets nft.TraceConfig, names trace.Names, send func()) (path string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
	defer cancel()
	started, sent := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(sent)
		select {
		case <-started:
			send()
		case <-ctx.Done():
		}
	}()
	_, err := trace.Follow(ctx, trace.Config{
		Packets: packets, Table: nft.DefaultName, Names: names, Count: 1, Started: func() { close(started) }, Lost: func() { w.t.Log("lost events") },
	}, func(p *trace.Path) error {
		path = fmt.Sprint(p)
		return nil
	})
	must(w.t, err)
	<-sent
	return path
}
