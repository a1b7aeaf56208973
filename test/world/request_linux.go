package world

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"time"
)

// Request is a request to a URL.
type Request struct {
	Method string // empty is GET
	URL    string
	Header http.Header
	// At is the address that it is sent to; if it is none, the host is looked up.
	At netip.Addr
	// Once: a connection that is not answered is not tried again.
	Once bool
}

// Response is what became of a request.
type Response struct {
	// Outcome is that of the connection. If it is not Connected, there is no more.
	Outcome Outcome
	// Lookup is that of the host; nil if nothing was looked up. If nothing was found, there is no connection.
	Lookup *Lookup
	// Status is 0 if the connection ends without a response; Why is the error.
	Status int
	Why    string
	Header http.Header
	// Backend is the Pod that answers; empty if the gateway does.
	Backend string
	// Certificate is that of the server, of a URL with https.
	Certificate *x509.Certificate
}

// Do sends a request. What the host has several addresses for, the first one that connects gets.
func (c *Client) Do(ctx context.Context, r Request) (resp Response, err error) {
	u, err := url.Parse(r.URL)
	if err != nil {
		return resp, err
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return resp, fmt.Errorf("%s: %w", r.URL, err)
	}
	addrs := []netip.Addr{r.At}
	if !r.At.IsValid() {
		if addrs, resp.Lookup, err = c.hostAddrs(ctx, u.Hostname()); err != nil {
			return resp, err
		}
	}
	for _, a := range addrs {
		if err = c.send(ctx, r, netip.AddrPortFrom(a, uint16(number)), &resp); err != nil || resp.Outcome == Connected {
			return resp, err
		}
	}
	return resp, err
}

// hostAddrs returns the addresses of a host.
func (c *Client) hostAddrs(ctx context.Context, host string) ([]netip.Addr, *Lookup, error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr}, nil, nil
	}
	if c.resolve == "" {
		return nil, nil, fmt.Errorf("%s has no resolver for %s", c.Name, host)
	}
	l, err := c.Lookup(ctx, host)
	return l.Addrs, &l, err
}

// send sends a request to an address. An error is one of the test.
func (c *Client) send(ctx context.Context, r Request, to netip.AddrPort, resp *Response) error {
	ctx, cancel := context.WithTimeout(ctx, answering)
	defer cancel()
	resp.Outcome = ""
	dialed := func(ctx context.Context, _, _ string) (conn net.Conn, err error) {
		tries := []time.Duration{firstTry, secondTry}
		if r.Once {
			tries = tries[1:]
		}
		for _, patience := range tries {
			if conn, err = c.dial(ctx, "tcp", to, patience); !isTimeout(err) {
				break
			}
		}
		switch {
		case err == nil:
			resp.Outcome = Connected
		case isRefusal(err):
			resp.Outcome = Refused
		case isTimeout(err):
			resp.Outcome = Dropped
		}
		return conn, err
	}
	transport := &http.Transport{
		DialContext: dialed, DisableKeepAlives: true,
		// Who connects to a server with a wrong certificate sees which one it has.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // see above
	}
	defer transport.CloseIdleConnections()
	method := r.Method
	if method == "" {
		method = http.MethodGet
	}
	req, err := http.NewRequestWithContext(ctx, method, r.URL, http.NoBody)
	if err != nil {
		return err
	}
	for name, values := range r.Header {
		req.Header[name] = values
		if name == "Host" {
			req.Host = values[0]
		}
	}
	res, err := transport.RoundTrip(req)
	if resp.Outcome == "" {
		return errors.Join(fmt.Errorf("%s to %s", c.Name, to), err)
	}
	if err != nil {
		resp.Why = err.Error()
		return nil
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		resp.Why = err.Error()
		return nil
	}
	resp.Status, resp.Header, resp.Backend = res.StatusCode, res.Header, res.Header.Get(PodField)
	if res.TLS != nil {
		resp.Certificate = res.TLS.PeerCertificates[0]
	}
	return nil
}
