//go:build unix

package main

import (
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/support/testcert"
)

func init() {
	maps.Copy(effects, map[string]func(*testing.T){
		"dns.tls.listen":      func(t *testing.T) { wantSecure(t, "one") },
		"dns.tls.certificate": effectOfCertificate,
		"dns.tls.key":         effectOfCertificate,
		"dns.https.listen":    func(t *testing.T) { wantHTTPS(t, "", "/dns-query") },
		"dns.https.path":      func(t *testing.T) { wantHTTPS(t, "path: /names", "/names") },
	})
}

// keyPair is the paths of a certificate for 127.0.0.1 and a name, and of its key.
type keyPair struct{ certificate, key string }

func newKeyPair(t *testing.T, dir, name string) (p keyPair) {
	t.Helper()
	c, err := testcert.New(name, time.Now().Add(time.Hour))
	if err == nil {
		p.certificate, p.key, err = c.Write(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// serveSecurely starts a server over TLS and HTTPS, with more settings of dns.https.
func serveSecurely(t *testing.T, p keyPair, https string) (server *process, tlsAddr, httpsAddr string) {
	t.Helper()
	server = serve(t, fmt.Sprintf("dns:\n  tls: {listen: ['%s'], certificate: '%s', key: '%s'}\n  https: {listen: ['%s'], %s}",
		anyPort, p.certificate, p.key, anyPort, https))
	tlsAddr = server.waitLog(`serving.* tls="?\[([0-9.:]+)\]`)[1]
	httpsAddr = server.waitLog(`serving.* https="?\[([0-9.:]+)\]`)[1]
	return server, tlsAddr, httpsAddr
}

// presentedName returns the name in the certificate presented at addr.
func presentedName(t *testing.T, addr string) string {
	t.Helper()
	conn, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"dot"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
}

// wantSecure checks answers over TLS: several on one connection, padded if the query is
// (RFC 8467).
func wantSecure(t *testing.T, name string) {
	t.Helper()
	_, addr, _ := serveSecurely(t, newKeyPair(t, t.TempDir(), name), "")
	conn, err := dns.DialWithTLS("tcp", addr, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 3 {
		q := new(dns.Msg)
		q.SetQuestion(dns.Fqdn(web), dns.TypeA)
		q.SetEdns0(1232, false)
		q.IsEdns0().Option = append(q.IsEdns0().Option, &dns.EDNS0_PADDING{Padding: []byte{0}})
		if err := conn.WriteMsg(q); err != nil {
			t.Fatal(err)
		}
		m, err := conn.ReadMsg()
		if err != nil {
			t.Fatal(err)
		}
		m.Compress = true // as received
		if len(m.Answer) != 1 || m.Answer[0].(*dns.A).A.String() != "10.96.0.7" || m.Len()%468 != 0 {
			t.Errorf("answer over TLS, of %d octets:\n%s", m.Len(), m)
		}
	}
}

// effectOfCertificate checks that the certificate in the files is presented, that changes
// of the files are applied, and that invalid files have no effect.
func effectOfCertificate(t *testing.T) {
	dir := t.TempDir()
	files := newKeyPair(t, dir, "first")
	p, addr, _ := serveSecurely(t, files, "")
	if got := presentedName(t, addr); got != "first" {
		t.Errorf("certificate of %q, want the first", got)
	}
	write(t, files.certificate, "no certificate")
	p.waitLogWhile(`the certificate cannot be used`, func() { presentedName(t, addr) })
	if got := presentedName(t, addr); got != "first" {
		t.Errorf("certificate of %q, want the first", got)
	}
	newKeyPair(t, dir, "second")
	p.poll(patience, func() error {
		if got := presentedName(t, addr); got != "second" {
			return fmt.Errorf("certificate of %q, want the second", got)
		}
		return nil
	})
}

// waitLogWhile is waitLog that calls do repeatedly.
func (p *process) waitLogWhile(pattern string, do func()) {
	p.t.Helper()
	p.poll(patience, func() error {
		do()
		if !strings.Contains(p.logged(), pattern) {
			return fmt.Errorf("the log does not have %q", pattern)
		}
		return nil
	})
}

// wantHTTPS checks that DNS over HTTPS is served on the path only.
func wantHTTPS(t *testing.T, setting, path string) {
	t.Helper()
	_, _, addr := serveSecurely(t, newKeyPair(t, t.TempDir(), "one"), setting)
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	packet, err := dnswire.NewQuery(question(web))
	if err != nil {
		t.Fatal(err)
	}
	encoded := base64.RawURLEncoding.EncodeToString(packet)
	const media = "application/dns-message"
	for name, c := range map[string]struct {
		method, path, media string
		body                []byte
		status              int
	}{
		"POST":             {http.MethodPost, path, media, packet, 200},
		"GET":              {http.MethodGet, path + "?dns=" + encoded, "", nil, 200},
		"another path":     {http.MethodGet, "/other?dns=" + encoded, "", nil, 404},
		"another type":     {http.MethodPost, path, "text/plain", packet, 415},
		"another method":   {http.MethodPut, path, media, packet, 405},
		"no query":         {http.MethodGet, path, "", nil, 400},
		"not base64":       {http.MethodGet, path + "?dns=%25", "", nil, 400},
		"shorter":          {http.MethodPost, path, media, packet[:5], 400},
		"longer than any":  {http.MethodPost, path, media, make([]byte, 70_000), 413},
		"a response, GET":  {http.MethodGet, path + "?dns=" + base64.RawURLEncoding.EncodeToString(response(packet)), "", nil, 400},
		"a response, POST": {http.MethodPost, path, media, response(packet), 400},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), c.method, "https://"+addr+c.path, bytes.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", c.media)
			res, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			body, _ := io.ReadAll(res.Body)
			if res.StatusCode != c.status {
				t.Fatalf("status %d, want %d", res.StatusCode, c.status)
			}
			if c.status != 200 {
				return
			}
			m, err := dnswire.ParseMessage(body)
			if err != nil {
				t.Fatal(err)
			}
			if err := wantData(m, "10.96.0.7"); err != nil {
				t.Error(err)
			}
			if got := res.Header.Get("Content-Type") + " " + res.Header.Get("Cache-Control") + " " + res.Proto; got != media+" max-age=5 HTTP/2.0" {
				t.Errorf("headers %q", got)
			}
		})
	}
}

// response returns a query with the QR bit set.
func response(packet []byte) []byte {
	packet = bytes.Clone(packet)
	packet[2] |= 0x80
	return packet
}

// serveOnlyOn starts a server with this listener only, and returns its address.
func serveOnlyOn(t *testing.T, name string) (p *process, addr string) {
	t.Helper()
	files := newKeyPair(t, t.TempDir(), "one")
	text := "admin: {coreDNSMetrics: true}\ndns:\n  listen: []\n"
	pair := fmt.Sprintf("certificate: '%s', key: '%s'", files.certificate, files.key)
	if name == "tls" {
		text += "  tls: {listen: ['" + anyPort + "'], " + pair + "}"
	} else {
		text += "  https: {listen: ['" + anyPort + "']}\n  tls: {" + pair + "}"
	}
	p = launch(t, "--config", settings(t, text))
	addr = p.waitLog(`serving zones=\[\S+\] ` + name + `=\[(\S+)\]`)[1]
	p.waitLog("manifests loaded")
	return p, addr
}

func TestServeOverTLSOnly(t *testing.T) {
	t.Parallel()
	p, addr := serveOnlyOn(t, "tls")
	client := dns.Client{Net: "tcp-tls", TLSConfig: &tls.Config{InsecureSkipVerify: true}}
	p.poll(patience, func() error {
		q := new(dns.Msg)
		q.SetQuestion(dns.Fqdn(web), dns.TypeA)
		m, _, err := client.Exchange(q, addr)
		if err == nil && len(m.Answer) != 1 {
			err = fmt.Errorf("answer:\n%s", m)
		}
		return err
	})
	p.awaitAdmin("/metrics", http.StatusOK, `server="tls://:0"`)
}

func TestServeOverHTTPSOnly(t *testing.T) {
	t.Parallel()
	p, addr := serveOnlyOn(t, "https")
	client := http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	packet, err := dnswire.NewQuery(question(web))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Post("https://"+addr+"/dns-query", "application/dns-message", bytes.NewReader(packet))
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Errorf("answer: %s", answer.Status)
	}
	p.awaitAdmin("/metrics", http.StatusOK, `portolan_`)
}
