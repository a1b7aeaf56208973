package proxy

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/bench/synthetic"
)

const (
	flows = 1000   // first packets in a batch
	sends = 20_000 // packets of an established flow in a batch

	firstPort = 10_000 // of the client
	portCount = 50_000

	// A flow to the endpoint has another source than those through the Service, so that
	// connection tracking does not need to give it another port.
	directSources = 2 * portCount
	maxBatches    = 2 * portCount / flows
)

// measurePackets measures the processor time of packets through all nodes, batch by batch
// in turn. The kernel charges the way of a packet through the node to the sender, whose
// thread is measured.
func (b *bench) measurePackets(running [contenders]*node, results [contenders]*result) error {
	for batch := range b.batches {
		for i := range contenders {
			place := (batch + i) % contenders
			if err := running[place].measureBatch(batch, results[place]); err != nil {
				return fmt.Errorf("packets through %s: %w", running[place].name, err)
			}
		}
	}
	return nil
}

// measureBatch sends packets to the Service and, for comparison, to its endpoint.
func (n *node) measureBatch(batch int, r *result) error {
	t := packets()
	for _, to := range []struct {
		netip.AddrPort
		sources            int
		first, established *[]float64
	}{
		{t.addrPort(), 0, &r.first, &r.established},
		{netip.AddrPortFrom(t.endpoints[0], datagrams), directSources, &r.directFirst, &r.directEstablished},
	} {
		err := n.world.Client.Do(func() error {
			first, err := sendFirst(to.AddrPort, to.sources+batch*flows)
			if err != nil {
				return err
			}
			established, err := sendMany(to.AddrPort, to.sources+batch)
			*to.first, *to.established = append(*to.first, first), append(*to.established, established)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// source returns the n-th source of flows: none comes twice.
func source(n int) netip.AddrPort {
	const sources = "10.244.8.1"
	return netip.AddrPortFrom(synthetic.Nth(sources, n/portCount), uint16(firstPort+n%portCount))
}

// sendFirst sends the first packets of flows, and returns the processor time of each in µs.
// They are sent without sockets of UDP, which would cost more than the way of the packet.
func sendFirst(to netip.AddrPort, from int) (float64, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	target := &unix.SockaddrInet4{Addr: to.Addr().As4()}
	return timeEach(flows, func() error {
		for i := range flows {
			if err := unix.Sendto(fd, datagram(source(from+i), to), 0, target); err != nil {
				return err
			}
		}
		return nil
	})
}

// datagram returns an IPv4 packet with a UDP datagram of one octet, without its checksum
// (RFC 768). The kernel fills in the checksum and the ID of the IPv4 header.
func datagram(from, to netip.AddrPort) []byte {
	const (
		headers          = 20 + 8
		versionAndLength = 0x45
		hops             = 64
	)
	p := make([]byte, 0, headers+1)
	p = append(p, versionAndLength, 0, 0, headers+1, 0, 0, 0, 0, hops, unix.IPPROTO_UDP, 0, 0)
	p = append(append(p, from.Addr().AsSlice()...), to.Addr().AsSlice()...)
	p = binary.BigEndian.AppendUint16(p, from.Port())
	p = binary.BigEndian.AppendUint16(p, to.Port())
	return append(p, 0, 8+1, 0, 0, '.')
}

// sendMany sends packets of a flow that was answered, and returns the processor time of each
// in µs.
func sendMany(to netip.AddrPort, from int) (each float64, err error) {
	const beyond = 2 * directSources // the sources of first packets
	fd, err := dial(source(beyond+from), to)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	if err := ask(fd); err != nil {
		return 0, fmt.Errorf("%s: %w", to, err)
	}
	return timeEach(sends, func() error {
		for range sends {
			if err := unix.Send(fd, []byte{'.'}, 0); err != nil {
				return err
			}
		}
		return nil
	})
}

// ask sends a question until it is answered: the server's queue may be full.
func ask(fd int) (err error) {
	const tries, wait = 50, 20_000 // µs
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: wait}); err != nil {
		return err
	}
	for range tries {
		if err := unix.Send(fd, []byte(question), 0); err != nil {
			return err
		}
		if _, err = unix.Read(fd, make([]byte, 1)); err == nil {
			return nil
		}
	}
	return fmt.Errorf("no answer: %w", err)
}

// timeEach returns the processor time of this thread in µs, divided by n.
func timeEach(n int, do func() error) (float64, error) {
	before, err := threadTime()
	if err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	after, err := threadTime()
	return float64(after-before) / float64(n) / float64(time.Microsecond), err
}

// dial returns a connected UDP socket.
func dial(from, to netip.AddrPort) (fd int, err error) {
	if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return 0, err
	}
	if err = unix.Bind(fd, &unix.SockaddrInet4{Port: int(from.Port()), Addr: from.Addr().As4()}); err == nil {
		err = unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
	}
	if err != nil {
		unix.Close(fd)
	}
	return fd, err
}
