package proxy

import (
	"context"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/bench/sender"
)

const (
	// staleRounds is how often an endpoint is replaced while a flow of UDP goes on, with a
	// datagram each stalePace.
	staleRounds = 5
	stalePace   = time.Millisecond
	// After staleGrace datagrams to the endpoint that was replaced are counted, for staleWindow.
	staleGrace  = 200 * time.Millisecond
	staleWindow = time.Second

	staleSource = sender.FirstPort + sender.PortCount // the first port of the clients
)

// measureStale returns the share of a flow's datagrams that still reach an endpoint that was
// replaced staleGrace ago, in percent.
func (n *node) measureStale(ctx context.Context) (float64, error) {
	var sent, late int64
	for round := range staleRounds {
		s, l, err := n.replaceUnderFlow(ctx, netip.AddrPortFrom(sender.Source(0).Addr(), uint16(staleSource+round)))
		if err != nil {
			return 0, err
		}
		sent, late = sent+s, late+l
	}
	return 100 * float64(late) / float64(sent), nil
}

// replaceUnderFlow replaces the endpoint of a Service while a client sends, and returns how many
// datagrams it sent in the window, and how many of them the endpoint of before got.
func (n *node) replaceUnderFlow(ctx context.Context, client netip.AddrPort) (sent, late int64, err error) {
	before, after := stale(n.another()), stale(n.another())
	var got atomic.Int64
	stop, err := n.count(netip.AddrPortFrom(before.endpoints[0], datagrams), &got)
	if err != nil {
		return 0, 0, err
	}
	defer stop()
	if err := n.api.Put(ctx, before.slices()[0]); err != nil {
		return 0, 0, err
	}
	err = n.world.Client.Do(func() error {
		fd, err := sender.Dial(client, before.addrPort())
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		send := func() { _ = unix.Send(fd, []byte{'.'}, 0) } // refused while there is no endpoint
		err = until(ctx, limit, func() (bool, error) { send(); return got.Load() > 0, nil })
		if err == nil {
			err = n.api.Put(ctx, after.slices()[0])
		}
		if err != nil {
			return err
		}
		replaced := time.Now()
		for time.Since(replaced) < staleGrace {
			send()
			time.Sleep(stalePace)
		}
		began := got.Load()
		for ; time.Since(replaced) < staleGrace+staleWindow; sent++ {
			send()
			time.Sleep(stalePace)
		}
		late = got.Load() - began
		return nil
	})
	return sent, late, err
}

// count counts the datagrams that arrive at an address until stop is called.
func (n *node) count(at netip.AddrPort, got *atomic.Int64) (stop func(), err error) {
	var conn *net.UDPConn
	err = n.world.Servers.Do(func() (err error) {
		conn, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(at))
		return err
	})
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			if _, _, err := conn.ReadFromUDPAddrPort(make([]byte, 1)); err != nil {
				return
			}
			got.Add(1)
		}
	}()
	return func() { conn.Close() }, nil
}
