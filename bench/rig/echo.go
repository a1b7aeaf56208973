package rig

import (
	"context"
	"net"
	"net/netip"
	"os/exec"
	"time"
)

// Echo returns a contender that sends every packet back (bench/echo). Its results
// measure the machine.
func Echo(p *Program, log string) *Contender {
	return &Contender{Name: "echo", Log: log,
		Command: func(ports []netip.AddrPort) (*exec.Cmd, error) {
			return p.Command(ports[0].String()), nil
		},
		Ready: func(_ context.Context, ports []netip.AddrPort) error { return echoes(ports[0]) },
	}
}

// echoes sends a packet and waits for its echo.
func echoes(server netip.AddrPort) error {
	const patience = 100 * time.Millisecond
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(server))
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	packet := []byte("hello")
	if _, err := conn.Write(packet); err != nil {
		return err
	}
	_, err = conn.Read(packet)
	return err
}
