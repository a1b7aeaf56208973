//go:build unix

package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	dnstap "github.com/dnstap/golang-dnstap"
	framestream "github.com/farsightsec/golang-framestream"
	"github.com/miekg/dns"
	"google.golang.org/protobuf/proto"

	"portolan.dev/portolan/internal/dns/dnswire"
)

func init() {
	maps.Copy(effects, map[string]func(*testing.T){
		"dns.queryLog.oneIn": func(t *testing.T) {
			wantLines(t, "oneIn: 1", web, 10)
			wantLines(t, "oneIn: 5", web, 2)
		},
		"dns.queryLog.clients": func(t *testing.T) {
			wantLines(t, "oneIn: 1, clients: [127.0.0.0/8]", web, 10)
			wantLines(t, "oneIn: 1, clients: [10.0.0.0/8]", web, 0)
		},
		"dns.queryLog.names": func(t *testing.T) {
			wantLines(t, "oneIn: 1, names: [shop.svc.cluster.local]", web, 10)
			wantLines(t, "oneIn: 1, names: [data.svc.cluster.local]", web, 0)
		},
		"dns.queryLog.rcodes": func(t *testing.T) {
			wantLines(t, "oneIn: 1, rcodes: [nxdomain]", "gone.shop.svc.cluster.local", 10)
			wantLines(t, "oneIn: 1, rcodes: [NXDOMAIN]", web, 0)
		},
		"dns.dnstap": effectOfDNSTap,
	})
}

// wantLines checks the number of log lines for ten queries.
func wantLines(t *testing.T, setting, name string, want int) {
	t.Helper()
	p := serveUnchecked(t, "dns:\n  queryLog: {"+setting+"}")
	for range 10 {
		p.ask("udp", question(name))
	}
	// Buffered lines are written at the end.
	p.stop(syscall.SIGTERM)
	if got := strings.Count(p.logged(), "msg=query"); got != want {
		t.Errorf("%s: %d lines, want %d", setting, got, want)
	}
	if want > 0 {
		p.waitLog(`msg=query client=127\.0\.0\.1:\d+ proto=udp qname=` + strings.TrimSuffix(name, ".") + `\. qtype=A rcode=\w+ octets=\d+ elapsed=\S+`)
		if strings.HasPrefix(name, "gone") {
			p.waitLog(`msg=query .* rcode=NXDOMAIN .* reason=no-service why="no such Service in this Namespace"`)
		}
	}
}

// effectOfDNSTap checks that a collector receives each query and its response.
func effectOfDNSTap(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "tap")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := serveUnchecked(t, "dns:\n  dnstap: unix:"+socket)
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	packet, err := dnswire.NewQuery(question(web))
	if err != nil {
		t.Fatal(err)
	}
	client := p.dial("udp")
	if err := client.send(packet); err != nil {
		t.Fatal(err)
	}
	answer, err := client.receive()
	if err != nil {
		t.Fatal(err)
	}
	r, err := framestream.NewReader(conn, &framestream.ReaderOptions{ContentTypes: [][]byte{dnstap.FSContentType}, Bidirectional: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		kind    dnstap.Message_Type
		message func(*dnstap.Message) []byte
		octets  []byte
	}{
		{dnstap.Message_CLIENT_QUERY, (*dnstap.Message).GetQueryMessage, packet},
		{dnstap.Message_CLIENT_RESPONSE, (*dnstap.Message).GetResponseMessage, answer},
	} {
		m, err := nextMessage(r)
		if err != nil {
			t.Fatal(err)
		}
		if m.GetType() != want.kind || !bytes.Equal(want.message(m), want.octets) || net.IP(m.GetQueryAddress()).String() != "127.0.0.1" ||
			m.GetQueryPort() == 0 || m.GetSocketProtocol() != dnstap.SocketProtocol_UDP || m.GetQueryTimeSec() == 0 {
			t.Errorf("message %v, want %v of %x", m, want.kind, want.octets)
		}
	}
}

func nextMessage(r *framestream.Reader) (*dnstap.Message, error) {
	frame := make([]byte, 1<<16)
	n, err := r.ReadFrame(frame)
	if err != nil {
		return nil, err
	}
	var tap dnstap.Dnstap
	if err := proto.Unmarshal(frame[:n], &tap); err != nil {
		return nil, err
	}
	if tap.Message == nil {
		return nil, errors.New("no message")
	}
	if len(tap.Identity) == 0 {
		return nil, fmt.Errorf("no identity in %v", &tap)
	}
	return tap.Message, nil
}

// TestDNSTapSendsAllQueriesAcrossReloads checks that all queries are sent to the
// collector in order, including those during reloads and the last ones.
func TestDNSTapSendsAllQueriesAcrossReloads(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "tap")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	told := make(chan string, 1<<16)
	go collectNames(l, told)
	file := settings(t, "dns:\n  ttl: 5\n  dnstap: unix:"+socket)
	text := contents(t, file)
	p := start(t, "--config", file)
	c := p.dial("udp")
	var asked []string
	for ttl := uint32(6); ttl < 9; ttl++ {
		write(t, file, strings.Replace(text, "ttl: 5", fmt.Sprint("ttl: ", ttl), 1))
		p.poll(patience, func() error {
			asked = append(asked, dns.Fqdn(web))
			m, err := c.ask(question(web))
			if err != nil || len(m.Answer) == 1 && m.Answer[0].TTL == ttl {
				return err
			}
			for range 50 {
				name := fmt.Sprintf("n%d.example.", len(asked))
				asked = append(asked, name)
				if _, err := c.ask(question(name)); err != nil {
					return err
				}
			}
			return fmt.Errorf("answer:\n%swant TTL %d", m, ttl)
		})
	}
	p.stop(syscall.SIGTERM)
	for i, want := range asked {
		select {
		case got := <-told:
			if got != want {
				t.Fatalf("query %d sent is %s, want %s", i, got, want)
			}
		case <-time.After(patience):
			t.Fatalf("%d of %d queries are sent", i, len(asked))
		}
	}
}

// TestDNSTapFlushesAtShutdown checks that buffered messages are sent at shutdown if there
// is a collector then.
func TestDNSTapFlushesAtShutdown(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "tap")
	p := serveUnchecked(t, "dns:\n  dnstap: unix:"+socket)
	p.waitLog("dnstap collector is gone")
	p.ask("udp", question("last.example."))
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	told := make(chan string, 1)
	go collectNames(l, told)
	p.stop(syscall.SIGTERM)
	select {
	case got := <-told:
		if got != "last.example." {
			t.Errorf("sent is %s", got)
		}
	case <-time.After(patience):
		t.Error("nothing is sent")
	}
}

// collectNames sends the names of queries that collectors receive to the channel, from
// one connection after another.
func collectNames(l net.Listener, told chan<- string) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		r, err := framestream.NewReader(conn, &framestream.ReaderOptions{ContentTypes: [][]byte{dnstap.FSContentType}, Bidirectional: true})
		for err == nil {
			var m *dnstap.Message
			if m, err = nextMessage(r); err == nil && m.GetType() == dnstap.Message_CLIENT_QUERY {
				var q dns.Msg
				if q.Unpack(m.GetQueryMessage()) == nil {
					told <- q.Question[0].Name
				}
			}
		}
		conn.Close()
	}
}
