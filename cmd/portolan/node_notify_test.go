//go:build unix

package main

import (
	"testing"
	"time"

	"github.com/miekg/dns"
)

func init() {
	effects["node.notify"] = func(t *testing.T) {
		s := serveUnchecked(t, "dns: {transfer: {allow: [{clients: [127.0.0.0/8]}]}}")
		p := startNode(t, "node: {servers: ['"+s.addr+"'], notify: '"+anyPort+"'}")
		at := p.waitLog(`serving.*notify\W+(127\.0\.0\.1:\d+)`)[1]
		tell := new(dns.Msg)
		tell.SetNotify("cluster.local.")
		reply, err := dns.Exchange(tell, at)
		if err != nil || reply.Rcode != dns.RcodeSuccess || !reply.Authoritative {
			t.Errorf("NOTIFY: %v, %v", reply, err)
		}
		query := new(dns.Msg)
		query.SetQuestion(web, dns.TypeA)
		client := dns.Client{Timeout: 200 * time.Millisecond}
		if reply, _, err := client.Exchange(query, at); err == nil {
			t.Errorf("a query on the NOTIFY address is answered: %v", reply)
		}
		wantAnswer(t, p, web, "\t10.96.0.7\n")
	}
}
