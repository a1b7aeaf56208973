package live

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"portolan.dev/portolan/internal/pod/path"
	"portolan.dev/portolan/internal/pod/request"
)

// handshake is what came of TLS at an address.
type handshake struct {
	conn  net.Conn // nil if it failed
	leaf  *x509.Certificate
	err   error
	trust string // why this machine does not trust the issuer; empty if it does
}

// ask makes a handshake and sends the request on the connection of an attempt, which it closes, and compares the layers
// tls, route and backend.
func (c *comparer) ask(ctx context.Context, t *tried) {
	if c.Message == nil {
		if t != nil {
			t.seen.conn.Close()
		}
		return
	}
	if t == nil {
		c.notCompared("no connection was made on which to ask")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	conn := t.seen.conn
	defer conn.Close()
	// What reads or writes ends with the context.
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	var greeted *handshake
	if c.Message.Scheme == "https" {
		greeted = c.greet(ctx, conn, t.seen.at)
		c.noListener(greeted)
		if greeted.err != nil {
			c.tls(greeted, nil)
			c.notCompared("without TLS no request is sent")
			return
		}
		conn = greeted.conn
	}
	if !c.Unsafe && !IsSafe(c.Message.Method) {
		c.tls(greeted, nil)
		c.notCompared(c.Message.Method + " may change something, and is sent with --send only")
		return
	}
	r := c.request(ctx, conn, t.seen.at)
	c.tls(greeted, r)
	if a := c.answer(); greeted == nil && a != nil && a.TLS != nil {
		c.notCompared("the port takes no request without TLS")
	}
	c.answers(r, t.seen.at.Addr())
}

// greet makes the handshake of a client that trusts every certificate, to see which one is served.
func (c *comparer) greet(ctx context.Context, conn net.Conn, at netip.AddrPort) *handshake {
	begin := time.Now()
	// What is served is verified afterwards, and nothing secret is sent.
	cfg := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}
	if !c.Message.HasAddress() {
		cfg.ServerName = c.Message.Name
	}
	client := tls.Client(conn, cfg)
	h := &handshake{err: client.HandshakeContext(ctx)}
	result := ""
	if h.err != nil {
		result = "failed: " + h.err.Error()
	} else {
		h.conn = client
		if certificates := client.ConnectionState().PeerCertificates; len(certificates) > 0 {
			h.leaf = certificates[0]
			h.trust = trust(certificates)
			result = h.String()
		}
	}
	c.record(fmt.Sprintf("TLS handshake for %s at %s", c.Message.Name, at), result, time.Since(begin))
	return h
}

// trust returns why this machine does not trust the issuer of a certificate; empty if it does.
func trust(all []*x509.Certificate) string {
	intermediates := x509.NewCertPool()
	for _, i := range all[1:] {
		intermediates.AddCert(i)
	}
	leaf := *all[0]
	within := leaf.NotBefore.Add(leaf.NotAfter.Sub(leaf.NotBefore) / 2) // whether it has expired is said by itself
	_, err := leaf.Verify(x509.VerifyOptions{Intermediates: intermediates, CurrentTime: within})
	if err != nil {
		return "this machine does not trust its issuer"
	}
	return ""
}

// String says which certificate is served.
func (h *handshake) String() string {
	if h.leaf == nil {
		return "no certificate"
	}
	text := fmt.Sprintf("a certificate for %s until %s", named(h.leaf), h.leaf.NotAfter.UTC().Format(time.DateTime))
	if h.trust != "" {
		text += ", and " + h.trust
	}
	return text
}

func named(leaf *x509.Certificate) string {
	all := slices.Clone(leaf.DNSNames)
	for _, ip := range leaf.IPAddresses {
		all = append(all, ip.String())
	}
	if len(all) == 0 {
		return "no name"
	}
	return strings.Join(all, ", ")
}

// unfit returns why a client refuses a certificate, whoever issued it; empty if it does not.
func (h *handshake) unfit(host string) string {
	switch now := time.Now(); {
	case h.leaf == nil:
		return "there is none"
	case now.After(h.leaf.NotAfter):
		return "it expired on " + h.leaf.NotAfter.UTC().Format(time.DateTime)
	case now.Before(h.leaf.NotBefore):
		return "it is not valid before " + h.leaf.NotBefore.UTC().Format(time.DateTime)
	}
	if err := h.leaf.VerifyHostname(host); err != nil {
		return "it is not for " + host
	}
	return ""
}

// answer returns what the gateway does by the model; nil if the request comes to none.
func (c *comparer) answer() *request.Answer {
	if c.e.Request == nil {
		return nil
	}
	return c.e.Request.Answer()
}

// tls compares the layer of TLS. The response is nil if there is none.
func (c *comparer) tls(h *handshake, r *response) {
	s := c.e.Step(path.TLS)
	a := c.answer()
	if s == nil || a == nil || a.TLS == nil {
		return
	}
	switch t := a.TLS; {
	case h == nil: // HTTP to a port with TLS
		s.Live = c.plain(t, r)
	case t.Refused != "" && t.Until == nil:
		s.Live = compared("the handshake fails: "+t.Refused, c.greeting(h, r), h.err != nil || brokenByTLS(r), staleGateway)
	case h.err != nil:
		s.Live = compared("a handshake", "it fails: "+h.err.Error(), false, staleGateway)
	case t.Demand != "":
		s.Live = compared("the client must have a certificate, and this one has none", c.greeting(h, r), brokenByTLS(r),
			staleGateway)
	case t.Passed:
		s.Live = compared("the endpoint answers the handshake", h.String(), true)
	case t.Until == nil:
		s.Live = unclear("", h.String(), "the certificate is not known to the model")
	case t.Refused != "":
		unfit := h.unfit(c.Message.Name)
		s.Live = compared("a certificate that clients refuse, for "+strings.Join(t.Names, ", "), join(h.String(), unfit),
			unfit != "", staleGateway)
	default:
		unfit := h.unfit(c.Message.Name)
		same := h.leaf != nil && slices.Equal(h.leaf.DNSNames, t.Names) && h.leaf.NotAfter.Equal(*t.Until)
		s.Live = compared(
			fmt.Sprintf("a certificate for %s until %s", strings.Join(t.Names, ", "), t.Until.UTC().Format(time.DateTime)),
			join(h.String(), unfit), unfit == "" && same, staleGateway)
	}
}

// noListener compares the layer of the route where no listener has the host, as the gateway ends the handshake.
func (c *comparer) noListener(h *handshake) {
	s, a := c.e.Step(path.Route), c.answer()
	if s != nil && a != nil && a.EndsHandshake() {
		s.Live = compared("the handshake fails: "+a.Reason, c.greeting(h, nil), alerts(h.err, a.TLS.Alert), staleGateway)
	}
}

// alerts reports whether an error is an alert of TLS, such as unrecognized_name, as crypto/tls has it.
func alerts(err error, alert string) bool {
	return err != nil && strings.Contains(err.Error(), strings.ReplaceAll(alert, "_", " "))
}

// staleGateway is the likely cause of another answer of a gateway.
const staleGateway = "the gateway is stale, or what answers at the address is none of Portolan's"

func join(text, more string) string {
	if more == "" {
		return text
	}
	return text + "; " + more
}

// greeting says what came of the handshake and of the request after it.
func (c *comparer) greeting(h *handshake, r *response) string {
	switch {
	case h.err != nil:
		return "it fails: " + h.err.Error()
	case r != nil && r.err != nil:
		return h.String() + "; then " + r.err.Error()
	case r == nil:
		return h.String()
	}
	return h.String() + "; then " + r.status()
}

// plain compares what a port with TLS says to a request without.
func (c *comparer) plain(t *request.TLS, r *response) *path.Live {
	expected := fmt.Sprintf("status %d", t.Status)
	return compared(expected, r.String(), r.err == nil && r.Status == t.Status, staleGateway)
}

// brokenByTLS reports whether a connection ended with an alert, as it does after a handshake of TLS 1.3 in which the
// client showed no certificate.
func brokenByTLS(r *response) bool {
	if r == nil || r.err == nil {
		return false
	}
	_, alert := errors.AsType[*net.OpError](r.err)
	return alert || strings.Contains(r.err.Error(), "tls: ")
}

// gatewayStatus are the statuses that rules demand clients to avoid, by a RoutePolicy or annotations.
var gatewayStatus = []int{
	http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestEntityTooLarge, http.StatusTooManyRequests,
	http.StatusFound,
}
