//go:build unix

package main

import (
	"fmt"
	"maps"
	"net"
	"os/exec"
	"testing"

	"github.com/miekg/dns"

	"portolan.dev/portolan/internal/config/configtest"
	"portolan.dev/portolan/internal/dns/autopath"
)

func init() {
	maps.Copy(effects, map[string]func(*testing.T){
		"node.servers": func(t *testing.T) {
			s := serveUnchecked(t, "dns: {ttl: 7}")
			p := startNode(t, "node: {mode: cache, servers: ['"+s.addr+"']}")
			wantAnswer(t, p, web, "\t10.96.0.7\n")
			wantAnswer(t, p, "7.0.96.10.in-addr.arpa.", "NOERROR")
			wantAnswer(t, p, "www.example.", "REFUSED")
		},
		"node.option": func(t *testing.T) {
			for setting, want := range map[string]string{
				"option: paths": "shop.svc.cluster.local,svc.cluster.local,cluster.local,corp.example", "option: compact": "\x01shop,cluster.local",
			} {
				options := make(chan string, 10)
				server := searchServer(t, options)
				p := startNode(t, "node: {mode: cache, servers: ['udp://"+server+"'], "+setting+"}\ndns:\n  autopath: {hostPaths: [corp.example]}")
				wantAnswer(t, p, searchedName, "\t192.0.2.1\n")
				if got := <-options; got != want {
					t.Errorf("%s: option %q, want %q", setting, got, want)
				}
			}
		},
	})
}

// startNode starts an agent with the settings.
func startNode(t *testing.T, text string) *process {
	t.Helper()
	file := t.TempDir() + "/node.yaml"
	write(t, file, configtest.Merge(fmt.Sprintf("dns: {listen: ['%s']}\nadmin: {listen: '%s'}", anyPort, anyPort), text))
	return follow(t, exec.Command("portolan", "node", "--config", file)).serving()
}

// searchServer starts a cluster DNS server that has web, and sends the options of queries
// for it to the channel.
func searchServer(t *testing.T, options chan<- string) (addr string) {
	t.Helper()
	conn, err := net.ListenPacket("udp", anyPort)
	if err != nil {
		t.Fatal(err)
	}
	runServer(t, &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg)
		m.SetReply(q)
		for _, o := range q.IsEdns0().Option {
			if local, ok := o.(*dns.EDNS0_LOCAL); ok && local.Code == autopath.DefaultOption {
				options <- string(local.Data)
			}
		}
		rr, err := dns.NewRR(q.Question[0].Name + " 60 A 192.0.2.1")
		if err != nil {
			panic(err)
		}
		m.Answer = append(m.Answer, rr)
		m.SetEdns0(1232, false)
		m.IsEdns0().Option = append(m.IsEdns0().Option, &dns.EDNS0_LOCAL{Code: autopath.DefaultOption}) // confirms the search
		_ = w.WriteMsg(m)
	})})
	return conn.LocalAddr().String()
}
