package query

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"time"

	"portolan.dev/portolan/bench/load"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// ask sends one query to a server over udp, tcp or tls.
func (q query) ask(network string, server netip.AddrPort) (*dnswire.Message, error) {
	const patience = 2 * time.Second
	wire, err := q.wire()
	if err != nil {
		return nil, err
	}
	conn, err := dial(network, server, patience)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	var answer []byte
	if network == "udp" {
		answer, err = exchangeUDP(conn, wire)
	} else {
		answer, err = load.ExchangeStream(conn, wire)
	}
	if err != nil {
		return nil, fmt.Errorf("%s over %s: %w", q, network, err)
	}
	return dnswire.ParseMessage(answer)
}

func dial(network string, server netip.AddrPort, patience time.Duration) (net.Conn, error) {
	dialer := net.Dialer{Timeout: patience}
	if network == "tls" {
		// Package load verifies the certificate; this compares answers only.
		return tls.DialWithDialer(&dialer, "tcp", server.String(), &tls.Config{InsecureSkipVerify: true})
	}
	return dialer.Dial(network, server.String())
}

func exchangeUDP(conn net.Conn, query []byte) (answer []byte, err error) {
	if _, err := conn.Write(query); err != nil {
		return nil, err
	}
	answer = make([]byte, 1<<16)
	n, err := conn.Read(answer)
	return answer[:n], err
}
