//go:build unix

package main

import (
	"crypto/tls"
	"encoding/base64"
	"errors"
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
	transferKey    = "secondary."
	transferSecret = "a secret of some thirty-two octets"
)

// zoneQuery returns an AXFR query, or an IXFR query if since is not nil.
func zoneQuery(apex string, since *dns.SOA) *dns.Msg {
	m := new(dns.Msg)
	if since == nil {
		return m.SetAxfr(apex)
	}
	return m.SetIxfr(apex, since.Serial, since.Ns, since.Mbox)
}

// sign adds a TSIG record to a query.
func sign(m *dns.Msg, algorithm string) *dns.Msg {
	return m.SetTsig(transferKey, algorithm, 300, time.Now().Unix())
}

// receiveTransfer transfers a zone from addr; a signed query is signed with secret. It
// returns the records, or an error with the response code.
func receiveTransfer(addr string, m *dns.Msg, secret string) (records []dns.RR, err error) {
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

// wantRCode checks that a transfer succeeded, or was refused with a code.
func wantRCode(t *testing.T, err error, code int) {
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

// wantTransfer checks that a server with settings of transfer sends the zone, or refuses
// with a code.
func wantTransfer(t *testing.T, setting string, code int) {
	t.Helper()
	p := serve(t, "dns:\n  transfer: "+setting)
	records, err := receiveTransfer(p.addr, zoneQuery("cluster.local.", nil), "")
	wantRCode(t, err, code)
	if code == dns.RcodeSuccess && !strings.Contains(fmt.Sprint(records), "web.shop.svc.cluster.local.\t5\tIN\tA\t10.96.0.7") {
		t.Errorf("transfer without a record of %s:\n%v", web, records)
	}
}

// secretFile writes a secret to a file.
func secretFile(t *testing.T, secret string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "secret")
	write(t, path, base64.StdEncoding.EncodeToString([]byte(secret))+"\n")
	return path
}

// keySettings returns settings that allow transfers with a key.
func keySettings(algorithm, file string) string {
	return fmt.Sprintf("dns: {transfer: {keys: [{name: secondary, algorithm: %s, secretFile: '%s'}], allow: [{key: Secondary.}]}}", algorithm, file)
}

// effectOfTransferKey checks that only queries signed with the key, its name and
// algorithm get the zone.
func effectOfTransferKey(t *testing.T) {
	p := serve(t, keySettings("hmac-sha512", secretFile(t, transferSecret)))
	query := func() *dns.Msg { return zoneQuery("cluster.local.", nil) }
	_, err := receiveTransfer(p.addr, query(), "")
	wantRCode(t, err, dns.RcodeRefused)
	_, err = receiveTransfer(p.addr, sign(query(), dns.HmacSHA512), transferSecret)
	wantRCode(t, err, dns.RcodeSuccess)
	for what, m := range map[string]*dns.Msg{"another algorithm": sign(query(), dns.HmacSHA256), "another name": query().SetTsig("other.", dns.HmacSHA512, 300, time.Now().Unix())} {
		if _, err := receiveTransfer(p.addr, m, transferSecret); err == nil {
			t.Errorf("%s: the zone is transferred", what)
		}
	}
}

// effectOfSecretFile checks that the secret in the file is used, and a new one after it
// changes.
func effectOfSecretFile(t *testing.T) {
	file := secretFile(t, transferSecret)
	p := serve(t, keySettings("hmac-sha256", file))
	ask := func(secret string) error {
		_, err := receiveTransfer(p.addr, sign(zoneQuery("cluster.local.", nil), dns.HmacSHA256), secret)
		return err
	}
	const other = "another secret of some octets"
	wantRCode(t, ask(transferSecret), dns.RcodeSuccess)
	if err := ask(other); err == nil {
		t.Errorf("transferred with another secret")
	}
	write(t, file, "no secret")
	p.waitLog("cannot use transfer keys")
	wantRCode(t, ask(transferSecret), dns.RcodeSuccess)
	write(t, file, base64.StdEncoding.EncodeToString([]byte(other)))
	p.poll(patience, func() error { return ask(other) })
}

// effectOfClientCertificate checks that over TLS only clients with a certificate for the
// name from the authority get the zone.
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
	own := newKeyPair(t, t.TempDir(), "server")
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
		wantRCode(t, err, c.code)
		conn.Close()
		if _, err := receiveTransfer(p.addr, zoneQuery("cluster.local.", nil), ""); err == nil {
			t.Errorf("%s: transferred without TLS", name)
		}
		// A certificate from an unknown authority fails the handshake.
		conn, err = dns.DialWithTLS("tcp", addr, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{stranger.TLS}})
		if err == nil {
			_, err = receiveZone(&dns.Transfer{Conn: conn}, addr, zoneQuery("cluster.local.", nil))
			conn.Close()
		}
		if err == nil {
			t.Errorf("%s: transferred with a certificate from an unknown authority", name)
		}
	}
}

// effectOfHistory checks that the last change can be transferred by default, and not with
// the setting.
func effectOfHistory(t *testing.T, setting string) {
	for _, c := range []struct {
		history string
		whole   bool
	}{{"{}", false}, {"{" + setting + "}", true}} {
		dir := shop(t)
		p := serve(t, "manifests: "+dir+"\ndns:\n  transfer: {allow: [{clients: [127.0.0.1]}], history: "+c.history+"}")
		all, err := receiveTransfer(p.addr, zoneQuery("cluster.local.", nil), "")
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "more.yaml"), service("more", "10.96.0.99"))
		p.await(patience, "more.shop.svc.cluster.local", "10.96.0.99")
		changed, err := receiveTransfer(p.addr, zoneQuery("cluster.local.", all[0].(*dns.SOA)), "")
		if err != nil {
			t.Fatal(err)
		}
		if whole := len(changed) > len(all); whole != c.whole {
			t.Errorf("history %s: IXFR of a zone of %d records has %d", c.history, len(all), len(changed))
		}
	}
}

// largeZone writes manifests of a zone that exceeds the socket buffers of a connection.
func largeZone(t *testing.T) (path string) {
	t.Helper()
	const endpoints = 12_000 // about 600 octets each
	return manyEndpoints(t, "[{name: a, port: 80}, {name: b, port: 81}, {name: c, port: 82}, {name: d, port: 83}]", endpoints)
}

// stallTransfer starts a transfer without reading it. The server has begun to send when
// it returns.
func stallTransfer(t *testing.T, addr string) {
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

// effectOfMaxTransfers checks that a transfer waits for its turn, up to a limit.
func effectOfMaxTransfers(t *testing.T) {
	large := largeZone(t)
	for most, code := range map[string]int{"1": dns.RcodeServerFailure, "2": dns.RcodeSuccess} {
		p := serve(t, "manifests: "+large+"\ndns:\n  tcp: {idle: 1m}\n  transfer: {allow: [{clients: [127.0.0.1]}], maxTransfers: "+most+"}")
		stallTransfer(t, p.addr)
		tr := &dns.Transfer{ReadTimeout: patience}
		_, err := receiveZone(tr, p.addr, zoneQuery("cluster.local.", nil))
		wantRCode(t, err, code)
	}
}

// effectOfTransferMemory checks that no further messages are built while those being sent
// use the memory limit.
func effectOfTransferMemory(t *testing.T) {
	large := largeZone(t)
	for memory, code := range map[string]int{"1Mi": dns.RcodeServerFailure, "128Mi": dns.RcodeSuccess} {
		p := serve(t, "manifests: "+large+"\ndns:\n  tcp: {idle: 1m}\n  transfer: {allow: [{clients: [127.0.0.1]}], memory: "+memory+"}")
		stallTransfer(t, p.addr)
		m := zoneQuery("cluster.local.", nil)
		m.SetEdns0(1232, false)
		m.IsEdns0().Option = append(m.IsEdns0().Option, &dns.EDNS0_LOCAL{Code: 65002}) // other messages: with metadata
		_, err := receiveZone(&dns.Transfer{ReadTimeout: patience}, p.addr, m)
		wantRCode(t, err, code)
	}
}

// receiveNotify waits for a NOTIFY for the zone, answers it and returns the serial.
func receiveNotify(t *testing.T, conn net.PacketConn, apex string) (serial uint32) {
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

func listenForNotify(t *testing.T) (conn net.PacketConn, port int) {
	t.Helper()
	conn, err := net.ListenPacket("udp", anyPort)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn, conn.LocalAddr().(*net.UDPAddr).Port
}

// effectOfNotify checks that the listed addresses receive NOTIFY for the zone and its
// changes.
func effectOfNotify(t *testing.T) {
	conn, port := listenForNotify(t)
	dir := shop(t)
	p := serve(t, fmt.Sprintf("manifests: %s\ndns:\n  transfer: {allow: [{clients: [192.0.2.1]}], notify: ['127.0.0.1:%d']}", dir, port))
	first := receiveNotify(t, conn, "cluster.local.")
	write(t, filepath.Join(dir, "more.yaml"), service("more", "10.96.0.99"))
	if next := receiveNotify(t, conn, "cluster.local."); next <= first {
		t.Errorf("NOTIFY for serial %d after that for %d", next, first)
	}
	p.poll(patience, func() error {
		if _, body := p.admin("/metrics"); !strings.Contains(body, `portolan_transfer_notifies_total{result="answered"} 2`) {
			return errors.New("the metrics do not count two NOTIFY messages")
		}
		return nil
	})
}

// effectOfNotifyService checks that the endpoints of the Service receive NOTIFY.
func effectOfNotifyService(t *testing.T) {
	conn, port := listenForNotify(t)
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
	receiveNotify(t, conn, "cluster.local.")
}

// TestReloadKeepsHistory checks that a change of other settings does not affect the
// history of changes, and that a change of the zones' own settings starts a new history.
func TestReloadKeepsHistory(t *testing.T) {
	t.Parallel()
	file := settings(t, "dns:\n  ttl: 7\n"+sendsZones)
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

// TestFailedReloadKeepsHistory checks that an invalid configuration does not affect the
// history of changes.
func TestFailedReloadKeepsHistory(t *testing.T) {
	t.Parallel()
	dir := shop(t)
	const allow = "transfer: {allow: [{clients: [127.0.0.1]}]"
	file := settings(t, "manifests: "+dir+"\ndns:\n  "+allow+"}\n")
	p := start(t, "--config", file)
	p.await(patience, web, "10.96.0.7")
	all, err := receiveTransfer(p.addr, zoneQuery("cluster.local.", nil), "")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "more.yaml"), service("more", "10.96.0.99"))
	p.await(patience, "more.shop.svc.cluster.local", "10.96.0.99")
	write(t, file, strings.Replace(contents(t, file), allow, allow+", history: {changes: 7}, keys: [{name: a, algorithm: hmac-sha256, secretFile: /nowhere}]", 1))
	p.waitLog("the configuration cannot be used; the one before stays in force")
	changed, err := receiveTransfer(p.addr, zoneQuery("cluster.local.", all[0].(*dns.SOA)), "")
	if err != nil {
		t.Fatal(err)
	}
	if len(changed) > len(all) {
		t.Errorf("IXFR of a zone of %d records has %d", len(all), len(changed))
	}
}
