//go:build unix

package main

import (
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"portolan.dev/portolan/internal/config/configtest"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/support/testcert"
)

func init() {
	maps.Copy(effects, map[string]func(*testing.T){
		"dns.transfer.allow.clients": func(t *testing.T) {
			wantTransfer(t, "{allow: [{clients: [127.0.0.1]}]}", dns.RcodeSuccess)
			wantTransfer(t, "{allow: [{clients: [192.0.2.0/24]}]}", dns.RcodeRefused)
			wantTransfer(t, "{}", dns.RcodeRefused)
		},
		"dns.transfer.allow.key":         effectOfTransferKey,
		"dns.transfer.allow.certificate": effectOfClientCertificate,
		"dns.tls.clientCA":               effectOfClientCertificate,
		"dns.transfer.keys.name":         effectOfTransferKey,
		"dns.transfer.keys.algorithm":    effectOfTransferKey,
		"dns.transfer.keys.secretFile":   effectOfSecretFile,
		"dns.transfer.history.changes":   func(t *testing.T) { effectOfHistory(t, "changes: 0") },
		"dns.transfer.history.memory":    func(t *testing.T) { effectOfHistory(t, "memory: 0") },
		"dns.transfer.maxTransfers":      effectOfMaxTransfers,
		"dns.transfer.memory":            effectOfTransferMemory,
		"dns.transfer.notify":            effectOfNotify,
		"dns.transfer.notifyService":     effectOfNotifyService,
	})
}

const (
	transferKey    = "replica."
	transferSecret = "a secret of some thirty-two octets"
)

// zoneQuery asks for a zone, or with a serial for what changed in it since.
func zoneQuery(apex string, since *dns.SOA) *dns.Msg {
	m := new(dns.Msg)
	if since == nil {
		return m.SetAxfr(apex)
	}
	return m.SetIxfr(apex, since.Serial, since.Ns, since.Mbox)
}

// sign has a query signed.
func sign(m *dns.Msg, algorithm string) *dns.Msg {
	return m.SetTsig(transferKey, algorithm, 300, time.Now().Unix())
}

// transferred asks for a zone at addr; a query that is signed is so with secret.
// It gives the records, or the code of the refusal.
func transferred(addr string, m *dns.Msg, secret string) (records []dns.RR, err error) {
	tr := &dns.Transfer{TsigSecret: map[string]string{transferKey: base64.StdEncoding.EncodeToString([]byte(secret))}}
	if m.IsTsig() == nil {
		tr.TsigSecret = nil
	}
	return receiveZone(tr, addr, m)
}

func receiveZone(tr *dns.Transfer, addr string, m *dns.Msg) (records []dns.RR, err error) {
	messages, err := tr.In(m, addr)
	if err != nil {
		return nil, err
	}
	for e := range messages {
		if e.Error != nil {
			err = e.Error
		}
		records = append(records, e.RR...)
	}
	return records, err
}

// wantCode wants a transfer, or its refusal with a code.
func wantCode(t *testing.T, err error, code int) {
	t.Helper()
	if code == dns.RcodeSuccess {
		if err != nil {
			t.Errorf("transfer: %v", err)
		}
		return
	}
	if want := fmt.Sprintf("bad xfr rcode: %d", code); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("transfer: %v, want %s", err, want)
	}
}

// wantTransfer wants a zone, or a refusal, where transfer is set so.
func wantTransfer(t *testing.T, setting string, code int) {
	t.Helper()
	p := serve(t, "dns:\n  transfer: "+setting)
	records, err := transferred(p.addr, zoneQuery("cluster.local.", nil), "")
	wantCode(t, err, code)
	if code == dns.RcodeSuccess && !strings.Contains(fmt.Sprint(records), "web.shop.svc.cluster.local.\t5\tIN\tA\t10.96.0.7") {
		t.Errorf("transfer without a record of %s:\n%v", web, records)
	}
}

// secretFile is a file with a secret.
func secretFile(t *testing.T, secret string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "secret")
	write(t, path, base64.StdEncoding.EncodeToString([]byte(secret))+"\n")
	return path
}

// keyed are the settings of transfers with a key.
func keyed(algorithm, file string) string {
	return fmt.Sprintf("dns: {transfer: {keys: [{name: replica, algorithm: %s, secretFile: '%s'}], allow: [{key: Replica.}]}}", algorithm, file)
}

// effectOfTransferKey: the zone goes to who signs with the key, of its name and
// its algorithm, and to nobody else.
func effectOfTransferKey(t *testing.T) {
	p := serve(t, keyed("hmac-sha512", secretFile(t, transferSecret)))
	query := func() *dns.Msg { return zoneQuery("cluster.local.", nil) }
	_, err := transferred(p.addr, query(), "")
	wantCode(t, err, dns.RcodeRefused)
	_, err = transferred(p.addr, sign(query(), dns.HmacSHA512), transferSecret)
	wantCode(t, err, dns.RcodeSuccess)
	for what, m := range map[string]*dns.Msg{"another algorithm": sign(query(), dns.HmacSHA256), "another name": query().SetTsig("other.", dns.HmacSHA512, 300, time.Now().Unix())} {
		if _, err := transferred(p.addr, m, transferSecret); err == nil {
			t.Errorf("%s: the zone is transferred", what)
		}
	}
}

// effectOfSecretFile: what the file holds is the secret, and what it holds later.
func effectOfSecretFile(t *testing.T) {
	file := secretFile(t, transferSecret)
	p := serve(t, keyed("hmac-sha256", file))
	ask := func(secret string) error {
		_, err := transferred(p.addr, sign(zoneQuery("cluster.local.", nil), dns.HmacSHA256), secret)
		return err
	}
	const other = "another secret of some octets"
	wantCode(t, ask(transferSecret), dns.RcodeSuccess)
	if err := ask(other); err == nil {
		t.Errorf("transferred with another secret")
	}
	write(t, file, "no secret")
	p.waitLog("cannot use transfer keys")
	wantCode(t, ask(transferSecret), dns.RcodeSuccess)
	write(t, file, base64.StdEncoding.EncodeToString([]byte(other)))
	p.poll(patience, func() error { return ask(other) })
}

// effectOfClientCertificate: over TLS the zone goes to who has a certificate for
// the name, signed by the authority that is given.
func effectOfClientCertificate(t *testing.T) {
	authority, err := testcert.New("secondary.example", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	ca, _, err := authority.Write(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := testcert.New("secondary.example", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	own := newPair(t, t.TempDir(), "server")
	for name, c := range map[string]struct {
		certificates []tls.Certificate
		code         int
	}{
		"secondary.example": {[]tls.Certificate{authority.TLS}, dns.RcodeSuccess},
		"other.example":     {[]tls.Certificate{authority.TLS}, dns.RcodeRefused},
		"Secondary.example": {nil, dns.RcodeRefused},
	} {
		p := serve(t, fmt.Sprintf("dns:\n  tls: {listen: ['%s'], certificate: '%s', key: '%s', clientCA: '%s'}\n  transfer: {allow: [{certificate: %s}]}",
			anyPort, own.certificate, own.key, ca, name))
		addr := p.waitLog(`serving.* tls="?\[([0-9.:]+)\]`)[1]
		conn, err := dns.DialWithTLS("tcp", addr, &tls.Config{InsecureSkipVerify: true, Certificates: c.certificates})
		if err != nil {
			t.Fatal(err)
		}
		_, err = receiveZone(&dns.Transfer{Conn: conn}, addr, zoneQuery("cluster.local.", nil))
		wantCode(t, err, c.code)
		conn.Close()
		if _, err := transferred(p.addr, zoneQuery("cluster.local.", nil), ""); err == nil {
			t.Errorf("%s: transferred without TLS", name)
		}
		// Who shows a certificate of nobody has no connection at all.
		conn, err = dns.DialWithTLS("tcp", addr, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{stranger.TLS}})
		if err == nil {
			_, err = receiveZone(&dns.Transfer{Conn: conn}, addr, zoneQuery("cluster.local.", nil))
			conn.Close()
		}
		if err == nil {
			t.Errorf("%s: transferred to a stranger", name)
		}
	}
}

// effectOfHistory: with the setting nothing is remembered of changes, and without
// the last one is.
func effectOfHistory(t *testing.T, setting string) {
	for _, c := range []struct {
		history string
		whole   bool
	}{{"{}", false}, {"{" + setting + "}", true}} {
		dir := shop(t)
		p := serve(t, "manifests: "+dir+"\ndns:\n  transfer: {allow: [{clients: [127.0.0.1]}], history: "+c.history+"}")
		all, err := transferred(p.addr, zoneQuery("cluster.local.", nil), "")
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "more.yaml"), service("more", "10.96.0.99"))
		p.await(patience, "more.shop.svc.cluster.local", "10.96.0.99")
		changed, err := transferred(p.addr, zoneQuery("cluster.local.", all[0].(*dns.SOA)), "")
		if err != nil {
			t.Fatal(err)
		}
		if whole := len(changed) > len(all); whole != c.whole {
			t.Errorf("history %s: IXFR of a zone of %d records has %d", c.history, len(all), len(changed))
		}
	}
}

// largeZone is manifests whose zone does not fit into what systems keep of a
// connection that nobody reads.
func largeZone(t *testing.T) (path string) {
	t.Helper()
	const endpoints = 12_000 // of some 600 octets each
	return manyEndpoints(t, "[{name: a, port: 80}, {name: b, port: 81}, {name: c, port: 82}, {name: d, port: 83}]", endpoints)
}

// stalled asks for the zone and does not read it. It begins to come before
// stalled returns.
func stalled(t *testing.T, addr string) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	c := &dns.Conn{Conn: conn}
	if err := c.WriteMsg(zoneQuery("cluster.local.", nil)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
}

// effectOfMaxTransfers: a transfer waits for its turn, and not forever.
func effectOfMaxTransfers(t *testing.T) {
	large := largeZone(t)
	for most, code := range map[string]int{"1": dns.RcodeServerFailure, "2": dns.RcodeSuccess} {
		p := serve(t, "manifests: "+large+"\ndns:\n  tcp: {idle: 1m}\n  transfer: {allow: [{clients: [127.0.0.1]}], maxTransfers: "+most+"}")
		stalled(t, p.addr)
		tr := &dns.Transfer{ReadTimeout: patience}
		_, err := receiveZone(tr, p.addr, zoneQuery("cluster.local.", nil))
		wantCode(t, err, code)
	}
}

// effectOfTransferMemory: no other messages are made while those that are sent
// take all of it.
func effectOfTransferMemory(t *testing.T) {
	large := largeZone(t)
	for memory, code := range map[string]int{"1Mi": dns.RcodeServerFailure, "128Mi": dns.RcodeSuccess} {
		p := serve(t, "manifests: "+large+"\ndns:\n  tcp: {idle: 1m}\n  transfer: {allow: [{clients: [127.0.0.1]}], memory: "+memory+"}")
		stalled(t, p.addr)
		m := zoneQuery("cluster.local.", nil)
		m.SetEdns0(1232, false)
		m.IsEdns0().Option = append(m.IsEdns0().Option, &dns.EDNS0_LOCAL{Code: 65002}) // other messages: with marks
		_, err := receiveZone(&dns.Transfer{ReadTimeout: patience}, p.addr, m)
		wantCode(t, err, code)
	}
}

// notified waits for a NOTIFY for the zone and answers it; it gives the serial.
func notified(t *testing.T, conn net.PacketConn, apex string) (serial uint32) {
	t.Helper()
	buf := make([]byte, 1500)
	for end := time.Now().Add(patience); time.Now().Before(end); {
		_ = conn.SetReadDeadline(end)
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			t.Fatal(err)
		}
		var m dns.Msg
		if err := m.Unpack(buf[:n]); err != nil || m.Opcode != dns.OpcodeNotify {
			t.Fatalf("%v is no NOTIFY: %v", &m, err)
		}
		reply, err := new(dns.Msg).SetReply(&m).Pack()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.WriteTo(reply, from); err != nil {
			t.Fatal(err)
		}
		if m.Question[0].Name == apex {
			return m.Answer[0].(*dns.SOA).Serial
		}
	}
	t.Fatalf("no NOTIFY for %s", apex)
	return 0
}

func secondary(t *testing.T) (conn net.PacketConn, port int) {
	t.Helper()
	conn, err := net.ListenPacket("udp", anyPort)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn, conn.LocalAddr().(*net.UDPAddr).Port
}

// effectOfNotify: who is listed is told of the zone, and of its changes.
func effectOfNotify(t *testing.T) {
	conn, port := secondary(t)
	dir := shop(t)
	p := serve(t, fmt.Sprintf("manifests: %s\ndns:\n  transfer: {allow: [{clients: [192.0.2.1]}], notify: ['127.0.0.1:%d']}", dir, port))
	first := notified(t, conn, "cluster.local.")
	write(t, filepath.Join(dir, "more.yaml"), service("more", "10.96.0.99"))
	if next := notified(t, conn, "cluster.local."); next <= first {
		t.Errorf("NOTIFY for serial %d behind that for %d", next, first)
	}
	p.poll(patience, func() error {
		if _, body := p.admin("/metrics"); !strings.Contains(body, `portolan_transfer_notifies_total{result="answered"} 2`) {
			return fmt.Errorf("metrics don't tell of two notices")
		}
		return nil
	})
}

// effectOfNotifyService: who is behind the Service is told.
func effectOfNotifyService(t *testing.T) {
	conn, port := secondary(t)
	dir := shop(t)
	write(t, filepath.Join(dir, "agents.yaml"), fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: agents, namespace: shop}
spec: {clusterIP: None}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: agents-1, namespace: shop, labels: {kubernetes.io/service-name: agents}}
addressType: IPv4
ports: [{name: metrics, port: 9}, {name: dns, port: %d, protocol: UDP}]
endpoints: [{addresses: [127.0.0.1]}]
`, port))
	serve(t, "manifests: "+dir+"\ndns:\n  transfer: {allow: [{clients: [192.0.2.1]}], notifyService: shop/agents}")
	notified(t, conn, "cluster.local.")
}

// TestReloadKeepsHistory: a change of other settings leaves the zones' history as
// it is: who follows it need not begin anew. One of the zones' own begins another.
func TestReloadKeepsHistory(t *testing.T) {
	t.Parallel()
	file := settings(t, "dns:\n  ttl: 7\n"+sends)
	p := start(t, "--config", file)
	p.await(patience, web, "10.96.0.7")
	soa := func() string {
		q := question("cluster.local.")
		q.Type = dnswire.TypeSOA
		return p.ask("udp", q).Answer[0].Data
	}
	first, text := soa(), contents(t, file)
	write(t, file, configtest.Merge(text, "dns: {block: {names: [shop.svc.cluster.local]}}"))
	p.poll(patience, func() error {
		if m := p.ask("udp", question(web)); m.Status != "NXDOMAIN" {
			return fmt.Errorf("not blocked:\n%s", m)
		}
		return nil
	})
	if now := soa(); now != first {
		t.Errorf("SOA %s, want %s", now, first)
	}
	write(t, file, strings.Replace(text, "ttl: 7", "ttl: 8", 1))
	p.poll(patience, func() error {
		if now := soa(); strings.Fields(now)[0] == strings.Fields(first)[0] {
			return fmt.Errorf("SOA %s, the history is not new", now)
		}
		return nil
	})
}

// TestReloadThatFails: a configuration that can't be used leaves what is remembered
// of changes as it is.
func TestReloadThatFails(t *testing.T) {
	t.Parallel()
	dir := shop(t)
	const allow = "transfer: {allow: [{clients: [127.0.0.1]}]"
	file := settings(t, "manifests: "+dir+"\ndns:\n  "+allow+"}\n")
	p := start(t, "--config", file)
	p.await(patience, web, "10.96.0.7")
	all, err := transferred(p.addr, zoneQuery("cluster.local.", nil), "")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "more.yaml"), service("more", "10.96.0.99"))
	p.await(patience, "more.shop.svc.cluster.local", "10.96.0.99")
	write(t, file, strings.Replace(contents(t, file), allow, allow+", history: {changes: 7}, keys: [{name: a, algorithm: hmac-sha256, secretFile: /nowhere}]", 1))
	p.waitLog("the configuration cannot be used; the one before stays in force")
	changed, err := transferred(p.addr, zoneQuery("cluster.local.", all[0].(*dns.SOA)), "")
	if err != nil {
		t.Fatal(err)
	}
	if len(changed) > len(all) {
		t.Errorf("IXFR of a zone of %d records has %d", len(all), len(changed))
	}
}
