package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"portolan.dev/portolan/internal/dnswire"
)

// ask asks one server once, over udp or tcp.
func (q query) ask(network string, server netip.AddrPort) (*dnswire.Message, error) {
	const patience = 2 * time.Second
	wire, err := q.wire()
	if err != nil {
		return nil, err
	}
	conn, err := net.DialTimeout(network, server.String(), patience)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	exchange := exchangeUDP
	if network == "tcp" {
		exchange = exchangeTCP
	}
	answer, err := exchange(conn, wire)
	if err != nil {
		return nil, fmt.Errorf("%s over %s: %w", q, network, err)
	}
	return dnswire.ParseMessage(answer)
}

func exchangeUDP(conn net.Conn, query []byte) (answer []byte, err error) {
	if _, err := conn.Write(query); err != nil {
		return nil, err
	}
	answer = make([]byte, 1<<16)
	n, err := conn.Read(answer)
	return answer[:n], err
}

func exchangeTCP(conn net.Conn, query []byte) (answer []byte, err error) {
	if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(query))), query...)); err != nil {
		return nil, err
	}
	var length [2]byte
	if _, err := io.ReadFull(conn, length[:]); err != nil {
		return nil, err
	}
	answer = make([]byte, binary.BigEndian.Uint16(length[:]))
	_, err = io.ReadFull(conn, answer)
	return answer, err
}
