package announce

import (
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// groupsPerSocket is how many groups a socket joins at most: the kernel has memory for some hundreds
// (net.core.optmem_max).
const groupsPerSocket = 100

// groups are the groups of which an interface is a member, so that the network card and the switches pass what is sent
// to them (RFC 3810).
type groups struct {
	index   int
	sockets map[int]int // how many groups each socket has joined, by file descriptor
	joined  map[netip.Addr]membership
}

// membership is the socket that joined a group, and how many addresses need it.
type membership struct{ fd, users int }

func newGroups(index int) groups {
	return groups{index: index, sockets: make(map[int]int), joined: make(map[netip.Addr]membership)}
}

// join joins a group once more.
func (g *groups) join(group netip.Addr) error {
	m, is := g.joined[group]
	if !is {
		fd, err := g.socket()
		if err != nil {
			return err
		}
		err = unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, g.request(group))
		if err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
		m.fd = fd
		g.sockets[fd]++
	}
	m.users++
	g.joined[group] = m
	return nil
}

// leave undoes a call of join.
func (g *groups) leave(group netip.Addr) {
	m, is := g.joined[group]
	if !is {
		return
	}
	if m.users--; m.users > 0 {
		g.joined[group] = m
		return
	}
	// An error means that the interface is gone, and its memberships with it.
	_ = unix.SetsockoptIPv6Mreq(m.fd, unix.IPPROTO_IPV6, unix.IPV6_LEAVE_GROUP, g.request(group))
	delete(g.joined, group)
	g.sockets[m.fd]--
}

func (g *groups) request(group netip.Addr) *unix.IPv6Mreq {
	return &unix.IPv6Mreq{Multiaddr: group.As16(), Interface: uint32(g.index)}
}

// socket returns a socket that may join one more group.
func (g *groups) socket() (fd int, err error) {
	for fd, n := range g.sockets {
		if n < groupsPerSocket {
			return fd, nil
		}
	}
	fd, err = unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	g.sockets[fd] = 0
	return fd, nil
}

func (g *groups) close() {
	for fd := range g.sockets {
		_ = unix.Close(fd)
	}
}
