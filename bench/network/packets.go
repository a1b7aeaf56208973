package network

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/bench/rig"
	"portolan.dev/portolan/test/await"
)

// path is two Pods between which packets are measured.
type path struct {
	of       *result
	part     string // of the table
	from, to *pod

	numbers map[key][]float64 // by batch
}

// near is the part of the table about Pods on one node.
const near = "near"

// measurePackets sends packets between Pods on one node and on two, all ways of all contenders in turn.
func (b *bench) measurePackets(ctx context.Context, order []*result) (err error) {
	var paths []*path
	defer func() {
		for _, p := range paths {
			for key, numbers := range p.numbers {
				p.of.rounds[len(p.of.rounds)-1][key] = rig.Over(numbers).Median
			}
		}
	}()
	for _, r := range order {
		for _, w := range ways() {
			made, done, err := b.newPaths(ctx, r, w)
			defer func() { err = errors.Join(err, done()) }()
			if err != nil {
				return fmt.Errorf("%s: packets: %w", r.name, err)
			}
			paths = append(paths, made...)
		}
	}
	defer rig.KeepGarbage()()
	for batch := range b.batches {
		for _, p := range rig.Turned(paths, batch) {
			if err := p.send(); err != nil {
				return fmt.Errorf("%s: packets: %s: %w", p.of.name, p.part, err)
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// newPaths makes two nodes with Pods. done ends them.
func (b *bench) newPaths(ctx context.Context, r *result, w way) (paths []*path, done func() error, err error) {
	nodes, err := b.newPair(ctx, r.contender, w, len(pair{}))
	var pods []*pod
	done = func() error {
		var errs []error
		for _, p := range pods {
			errs = append(errs, p.network.Close())
		}
		return errors.Join(append(errs, nodes.close())...)
	}
	if err != nil {
		return nil, done, err
	}
	// One has a port of the node, so that connections are tracked everywhere.
	for i, n := range []*node{nodes[0], nodes[0], nodes[1]} {
		p, err := newPod(fmt.Sprintf("pod-%d", i), firstHostPort, false)
		if err != nil {
			return nil, done, err
		}
		pods = append(pods, p)
		if i == 1 {
			p.hostPort = 0
		}
		if err := n.network.Do(func() error { _, err := n.add(p); return err }); err != nil {
			return nil, done, err
		}
	}
	paths = []*path{{of: r, part: string(w), from: pods[0], to: pods[2]}}
	if w == direct {
		paths = append(paths, &path{of: r, part: near, from: pods[0], to: pods[1]})
	}
	for _, p := range paths {
		p.numbers = make(map[key][]float64)
		if err := p.await(); err != nil {
			return nil, done, fmt.Errorf("%s: %w", p.part, err)
		}
	}
	return paths, done, nil
}

// await waits until packets get through.
func (p *path) await() error {
	const longest = 10 * time.Second
	for family := range p.to.addrs {
		err := await.Within(longest, func() error {
			_, err := p.exchange(family, 1)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// send sends a batch of each kind.
func (p *path) send() error {
	const exchanges, octets = 10_000, 128 << 20
	for family, name := range families() {
		s, err := p.exchange(family, exchanges)
		if err != nil {
			return fmt.Errorf("datagrams over %s: %w", name, err)
		}
		const packets = 2 * exchanges
		p.note("packet "+name, float64(s.processor)/float64(time.Microsecond)/packets)
		p.note("rate "+name, packets/s.took.Seconds()/1000)
		if s, err = p.stream(family, octets); err != nil {
			return fmt.Errorf("a stream over %s: %w", name, err)
		}
		const gibibytes = float64(octets) / (1 << 30)
		p.note("stream "+name, milliseconds(s.processor)/gibibytes)
	}
	return nil
}

func families() []string { return []string{"IPv4", "IPv6"} }

func (p *path) note(what string, number float64) {
	k := key{p.part, what}
	p.numbers[k] = append(p.numbers[k], number)
}

// patience is how long a packet may take.
const patience = time.Second

// port is that of servers.
const port = 5000

// exchange sends datagrams of some octets and answers, one after the other. One thread has both ends, so that its
// processor time is that of a packet from end to end without the waking of processes.
func (p *path) exchange(family, count int) (s spent, err error) {
	server, err := p.to.socket(unix.SOCK_DGRAM, family)
	if err != nil {
		return s, err
	}
	defer unix.Close(server)
	client, err := p.from.socket(unix.SOCK_DGRAM, family)
	if err != nil {
		return s, err
	}
	defer unix.Close(client)
	if err := unix.Bind(server, sockaddr(p.to.addrs[family])); err != nil {
		return s, fmt.Errorf("bind: %w", err)
	}
	if err := unix.Connect(client, sockaddr(p.to.addrs[family])); err != nil {
		return s, fmt.Errorf("connect: %w", err)
	}
	buf := make([]byte, 64)
	return measured(func() error {
		for range count {
			if err := unix.Send(client, buf[:32], 0); err != nil {
				return fmt.Errorf("send: %w", err)
			}
			n, from, err := unix.Recvfrom(server, buf, 0)
			if err != nil {
				return fmt.Errorf("receive: %w", err)
			}
			if err := unix.Sendto(server, buf[:n], 0, from); err != nil {
				return fmt.Errorf("answer: %w", err)
			}
			if _, err := unix.Read(client, buf); err != nil {
				return fmt.Errorf("receive an answer: %w", err)
			}
		}
		return nil
	})
}

// stream sends octets over a connection. One thread has both ends.
func (p *path) stream(family, octets int) (s spent, err error) {
	listener, err := p.to.socket(unix.SOCK_STREAM, family)
	if err != nil {
		return s, err
	}
	defer unix.Close(listener)
	client, err := p.from.socket(unix.SOCK_STREAM, family)
	if err != nil {
		return s, err
	}
	defer unix.Close(client)
	to := sockaddr(p.to.addrs[family])
	err = errors.Join(unix.SetsockoptInt(listener, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), unix.Bind(listener, to))
	if err != nil {
		return s, fmt.Errorf("bind: %w", err)
	}
	if err := unix.Listen(listener, 1); err != nil {
		return s, fmt.Errorf("listen: %w", err)
	}
	if err := unix.Connect(client, to); err != nil {
		return s, fmt.Errorf("connect: %w", err)
	}
	server, _, err := unix.Accept(listener)
	if err != nil {
		return s, fmt.Errorf("accept: %w", err)
	}
	defer unix.Close(server)
	if err := unix.SetNonblock(client, true); err != nil {
		return s, err
	}
	if err := unix.SetsockoptTimeval(server, unix.SOL_SOCKET, unix.SO_RCVTIMEO, timeout()); err != nil {
		return s, err
	}
	return measured(func() error { return pump(client, server, octets) })
}

// pump writes octets and reads what has arrived, in turn.
func pump(client, server, octets int) error {
	const chunk = 64 << 10
	buf := make([]byte, chunk)
	for sent, received := 0, 0; received < octets; {
		if sent < octets {
			n, err := unix.Write(client, buf[:min(chunk, octets-sent)])
			if err != nil && err != unix.EAGAIN {
				return fmt.Errorf("write: %w", err)
			}
			sent += max(n, 0)
		}
		if sent == received {
			continue
		}
		n, err := unix.Read(server, buf)
		switch {
		case err != nil:
			return fmt.Errorf("read: %w", err)
		case n == 0:
			return errors.New("the connection ended")
		}
		received += n
	}
	return nil
}

// socket makes a socket in the Pod.
func (p *pod) socket(kind, family int) (fd int, err error) {
	err = p.network.Do(func() error {
		fd, err = unix.Socket([]int{unix.AF_INET, unix.AF_INET6}[family], kind|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("socket: %w", err)
	}
	return fd, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, timeout())
}

func timeout() *unix.Timeval { t := unix.NsecToTimeval(int64(patience)); return &t }

func sockaddr(a netip.Addr) unix.Sockaddr {
	if a.Is4() {
		return &unix.SockaddrInet4{Port: port, Addr: a.As4()}
	}
	return &unix.SockaddrInet6{Port: port, Addr: a.As16()}
}
