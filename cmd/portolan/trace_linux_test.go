package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// TestTrace: the command prints what became of a packet, as text and for programs, by addresses
// and by names; and its table goes with the process, even if that is killed.
func TestTrace(t *testing.T) {
	t.Parallel()
	p := startProxy(t, proxyManifests, "detectLocal: {mode: NodeCIDR}")
	config := p.cmd.Args[len(p.cmd.Args)-1]
	inNetwork(t, p, "sh", "-c", "ip link set lo up; ip address add 192.0.2.1/24 dev lo; ip route add default dev lo")
	const connect = "timeout 1 bash -c '</dev/tcp/%s' 2>/dev/null; "
	trace := func(then, args string) string {
		return "d=$(mktemp -d); portolan trace " + args + " >$d/out 2>$d/err & " +
			"for i in $(seq 400); do grep -qs following $d/err && break; kill -0 $! || break; sleep 0.05; done; " +
			then + "wait $!; echo status $?; cat $d/out $d/err; rm -r $d"
	}
	const tables = "nft list tables; "
	for _, c := range []struct {
		claim, script string
		want          []string // regular expressions
	}{
		{
			"by name",
			trace(fmt.Sprintf(connect, "10.96.0.10/80"), "web.shop:http --from node --count 1 --config "+config),
			[]string{
				`^status 0\n192\.0\.2\.1:\d+ → 10\.96\.0\.10:80/tcp \(Service shop/web\)\n  ip portolan-proxy: output → services → endpoints-2: accept\n`,
				`  sent to 10\.244\.[78]\.2:8080/tcp through lo, (masqueraded as 192\.0\.2\.1|with its own source)\n`,
				`portolan: following packets from node to web\.shop:http/tcp\n`,
			},
		},
		{
			"without a cluster, for programs",
			trace(fmt.Sprintf(connect, "10.96.0.10/81"), "10.96.0.10:81 --from 192.0.2.1 -o json --count 1 --kubeconfig /none"),
			[]string{
				`^status 0\n\{"from":"192\.0\.2\.1:\d+","to":\{"address":"10\.96\.0\.10:81","protocol":"tcp"\},"steps":\[\{"table":"ip portolan-proxy",`,
				`"outcome":"rejected","by":\{"table":"ip portolan-proxy","chain":"refuse","rule":\d+\},"why":"the cluster IP has no such port"\}\n`,
				`portolan: note: Services are not named: .*\n`,
			},
		},
		{
			"without a port",
			trace(fmt.Sprintf(connect, "10.96.0.10/81"), "shop/web --from node --count 1 --config "+config),
			[]string{
				`^status 0\n192\.0\.2\.1:\d+ → 10\.96\.0\.10:81/tcp\n`, `chain refuse: the cluster IP has no such port\n`,
				`portolan: following packets from node to web\.shop\n`,
			},
		},
		{
			"an address without a port",
			trace(fmt.Sprintf(connect, "10.96.0.10/81"), "10.96.0.10 --from node --count 1 --config "+config),
			[]string{`^status 0\n192\.0\.2\.1:\d+ → 10\.96\.0\.10:81/tcp.*\n`},
		},
		{
			"clients outside", trace(fmt.Sprintf(connect, "10.96.0.10/80"), "web.shop:80 --from outside --for 1s --config "+config),
			[]string{`^status 1\n`, `portolan: no packet from outside to web\.shop:80/tcp arrived at this node`},
		},
		{
			"no packet", trace("", "10.96.0.10:80 --from 192.0.2.77 --for 100ms --config "+config),
			[]string{`^status 1\n`, `portolan: no packet from 192\.0\.2\.77 to 10\.96\.0\.10:80/tcp arrived at this node that opens a connection; --all follows`},
		},
		{
			"it ends", trace(tables+"kill $!; ", "--from node --config "+config) + "; " + tables,
			[]string{`^table ip portolan-proxy\ntable ip6 portolan-proxy\ntable ip portolan-trace-\d+\ntable ip6 portolan-trace-\d+\n`,
				`\ntable ip portolan-proxy\ntable ip6 portolan-proxy\n$`},
		},
		{
			"it is killed", trace(tables+"kill -KILL $!; ", "--from node --config "+config) + "; " + tables,
			[]string{`^table ip portolan-proxy\ntable ip6 portolan-proxy\ntable ip portolan-trace-\d+\ntable ip6 portolan-trace-\d+\n`,
				`\ntable ip portolan-proxy\ntable ip6 portolan-proxy\n$`},
		},
		{
			"without rights", "setpriv --bounding-set -net_admin --inh-caps -net_admin portolan trace --from node --config " + config + "; echo status $?",
			[]string{`portolan: it needs the capability NET_ADMIN: run it as root, in the node's network\nstatus 2\n`},
		},
		{
			"mistakes", "for a in '' 'http://web --from node' 'web --from node' '10.96.0.10:http --from node' 'nope.shop:80 --from node' 'web.shop.example.com:80 --from node' 'web.shop.svc.cluster.local:82 --from node' 'web.shop:81 --from node' '--from shop/none' '--from a/b/c/d'; " +
				"do portolan trace $a --config " + config + "; echo status $?; done",
			[]string{
				`--from is missing; the client is NAMESPACE/POD, an address, a range of addresses, node or outside\nstatus 2\n`,
				`"http://web" is not SERVICE, NAMESPACE/SERVICE or an address.*\nstatus 2\n`, `there is no Service default/web;.*\nstatus 2\n`, `"http" is not the number of a port.*\nstatus 2\n`,
				`there is no Service shop/nope.*\nstatus 2\n`, `web\.shop\.example\.com is no name of a Service;.*\nstatus 2\n`, `no port of Service shop/web is 82/tcp \(it has 80\)\nstatus 2\n`,
				`no port of Service shop/web is 81/tcp \(it has 80\)\nstatus 2\n`, `shop/none.*\nstatus 2\n`,
				`--from "a/b/c/d" is not NAMESPACE/POD, an address.*\nstatus 2\n`,
			},
		},
	} {
		got := inNetwork(t, p, "bash", "-c", c.script)
		for _, want := range c.want {
			if !regexp.MustCompile(want).MatchString(got) {
				t.Errorf("%s: %s\n%s\ndoes not match %q", c.claim, c.script, strings.TrimSpace(got), want)
			}
		}
	}
}
