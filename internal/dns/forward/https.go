package forward

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"

	"portolan.dev/portolan/internal/dns/dnswire"
)

// https queries over HTTP/2 (RFC 8484).
type https struct {
	to     Upstream
	url    string
	client *http.Client
	trace  httptrace.ClientTrace // counts connections that are reused
}

// mediaType is the media type of DNS messages (RFC 8484, section 6).
const mediaType = "application/dns-message"

func newHTTPS(u Upstream, counts *upstreamCounts) *https {
	host := u.ServerName
	if host == "" {
		host = u.Addr.Addr().String()
		if u.Addr.Addr().Is6() {
			host = "[" + host + "]"
		}
	}
	transport := &http.Transport{
		// The configuration has the address, so no name must be resolved first.
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			counts.opened.Add(1)
			d := net.Dialer{Timeout: openTime}
			return d.DialContext(ctx, "tcp", u.Addr.String())
		},
		TLSClientConfig:     tlsConfig(u),
		TLSHandshakeTimeout: openTime,
		ForceAttemptHTTP2:   true,
		IdleConnTimeout:     idleTime,
		MaxConnsPerHost:     maxConns,
		// Stop using a connection soon after its peer has silently gone.
		HTTP2: &http.HTTP2Config{SendPingTimeout: silentTime, PingTimeout: silentTime},
	}
	trace := httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		if got.Reused {
			counts.reused.Add(1)
		}
	}}
	return &https{u, "https://" + host + u.Path, &http.Client{Transport: transport}, trace}
}

func (h *https) exchange(ctx context.Context, query []byte) (*dnswire.Reply, error) {
	body := bytes.Clone(query)
	binary.BigEndian.PutUint16(body, 0) // for HTTP caches (RFC 8484, section 4.1)
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, &h.trace), http.MethodPost, h.url,
		bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", mediaType)
	req.Header.Set("Accept", mediaType)
	res, err := h.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("HTTP status %s", res.Status)
	}
	message, err := io.ReadAll(io.LimitReader(res.Body, dnswire.MaxMessage+1))
	if err != nil {
		return nil, err
	}
	reply, err := dnswire.ParseReply(message)
	if err != nil {
		return nil, err
	}
	if _, question, _ := reply.MatchQuery(query); !question {
		return nil, errOther
	}
	reply.ID = binary.BigEndian.Uint16(query)
	return reply, nil
}

func (h *https) close() { h.client.CloseIdleConnections() }
