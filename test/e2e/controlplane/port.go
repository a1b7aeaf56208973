package controlplane

import (
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// port holds a port of an address of this machine for a server that shares ports (SO_REUSEPORT):
// the socket is bound and never listens, so that the server gets all
// connections, and nobody else gets the port while the server is down.
type port struct {
	addr string
	fd   int
}

func reservePort(on netip.Addr) (*port, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	p := &port{fd: fd}
	if err := p.bind(on); err != nil {
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	return p, nil
}

func (p *port) bind(on netip.Addr) error {
	if err := unix.SetsockoptInt(p.fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	if err := unix.Bind(p.fd, &unix.SockaddrInet4{Addr: on.As4()}); err != nil {
		return os.NewSyscallError("bind", err)
	}
	name, err := unix.Getsockname(p.fd)
	if err != nil {
		return os.NewSyscallError("getsockname", err)
	}
	bound := name.(*unix.SockaddrInet4)
	p.addr = netip.AddrPortFrom(netip.AddrFrom4(bound.Addr), uint16(bound.Port)).String()
	return nil
}

// Close gives the port back.
func (p *port) Close() error { return unix.Close(p.fd) }
