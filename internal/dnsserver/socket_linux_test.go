package dnsserver_test

import (
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/dnsserver"
	"portolan.dev/portolan/internal/respond"
)

// TestUDPGoesOnAfterClientsThatLeft: an answer to a port that was closed comes
// back as an ICMP message.
func TestUDPGoesOnAfterClientsThatLeft(t *testing.T) {
	asked, left := make(chan struct{}), make(chan struct{})
	s := listen(t, dnsserver.Config{}, func(packet []byte, client respond.Client, buf []byte) []byte {
		if string(packet) == "I leave" {
			select {
			case asked <- struct{}{}:
				<-left
			case <-t.Context().Done():
			}
		}
		return echo(packet, client, buf)
	})
	// The system tells a socket about ICMP messages only when it is connected,
	// or wants that.
	if err := s.KeepOneUDPSocket().SetOption(unix.IPPROTO_IP, unix.IP_RECVERR, 1); err != nil {
		t.Fatal(err)
	}
	s.run()
	stays := dialUDP(t, s.addr())
	for range 5 {
		leaves := dialUDP(t, s.addr())
		if _, err := leaves.Write([]byte("I leave")); err != nil {
			t.Fatal(err)
		}
		receive(t, asked, "the query")
		leaves.Close()
		left <- struct{}{}
		wantEcho(t, stays, "I stay")
	}
}

// failReads makes each read of the socket fail at once, or no longer.
func failReads(t *testing.T, socket dnsserver.UDPSocket, fail bool) {
	t.Helper()
	var timeout unix.Timeval
	if fail {
		timeout.Usec = 1
	}
	if err := socket.SetReceiveTimeout(timeout); err != nil {
		t.Fatal(err)
	}
}

// TestUDPReadErrorsAreTakenSlowly: a socket that fails at each read takes no
// processor for itself, and serves again when it can.
func TestUDPReadErrorsAreTakenSlowly(t *testing.T) {
	const errs = 4
	log := make(logLines, 100)
	s := listen(t, dnsserver.Config{Log: log.logger()}, echo)
	socket := s.KeepOneUDPSocket()
	failReads(t, socket, true)
	begun := time.Now()
	s.run()
	for range errs {
		line := receive(t, log, "an error in the log")
		if !strings.Contains(line, "recvmmsg: resource temporarily unavailable") {
			t.Fatalf("log: %s, want the error of reading", line)
		}
	}
	if got, least := time.Since(begun), (errs-2)*50*time.Millisecond; got < least {
		t.Errorf("%d errors in %s, want %s at least", errs, got, least)
	}
	failReads(t, socket, false)
	wantEcho(t, dialUDP(t, s.addr()), "hello")
}

func TestStopEndsAServerWhoseUDPSocketFails(t *testing.T) {
	log := make(logLines, 100)
	s := listen(t, dnsserver.Config{Log: log.logger()}, echo)
	failReads(t, s.KeepOneUDPSocket(), true)
	s.run()
	receive(t, log, "an error in the log")
	s.stop()
	if err := s.end(); err != nil {
		t.Errorf("Run() = %v, want nil", err)
	}
}

// TestUDPQueriesHaveALength: those that are longer are cut.
func TestUDPQueriesHaveALength(t *testing.T) {
	s := start(t, dnsserver.Config{}, echo)
	conn := dialUDP(t, s.addr())
	for _, length := range []int{dnsserver.MaxUDPQuery, dnsserver.MaxUDPQuery + 1, 65507} {
		got, err := exchange(conn, longest[:length])
		if want := min(length, dnsserver.MaxUDPQuery); err != nil || len(got) != want {
			t.Errorf("of %d octets %d came in (%v), want %d", length, len(got), err, want)
		}
	}
}

// TestSteering: with it, packets come to the socket for the processor on which
// the client runs, for what it sends over loopback is taken in there.
func TestSteering(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	cpus := dnsserver.Processors()
	if len(cpus) < 2 || len(cpus) != runtime.GOMAXPROCS(0) {
		t.Skip("needs two processors, and all there are")
	}
	defer func() { _ = unix.SchedSetaffinity(0, &all) }()
	for _, steering := range []dnsserver.Steering{dnsserver.SteerByCPU, dnsserver.SteerByHash} {
		s := listen(t, dnsserver.Config{Steering: steering}, echo)
		const packets = 64
		strays := 0
		for i, cpu := range cpus {
			var one unix.CPUSet
			one.Set(cpu)
			if err := unix.SchedSetaffinity(0, &one); err != nil {
				t.Fatal(err)
			}
			for range packets {
				if _, err := dialUDP(t, s.addr()).Write([]byte("hello")); err != nil {
					t.Fatal(err)
				}
			}
			for socket := range cpus {
				if n := s.TakePackets(socket); socket != i {
					strays += n
				}
			}
		}
		if wants := steering == dnsserver.SteerByHash; (strays > 0) != wants {
			t.Errorf("steering by %s: %d packets came to the socket of another processor", steering, strays)
		}
		s.Close()
	}
}

// TestUnspecifiedAddressAnswersFromWhereItWasAsked: a connected socket takes
// packets from no other address.
func TestUnspecifiedAddressAnswersFromWhereItWasAsked(t *testing.T) {
	s := start(t, dnsserver.Config{Listen: []netip.AddrPort{netip.MustParseAddrPort("0.0.0.0:0")}}, echo)
	for _, addr := range []string{"127.0.0.1", "127.0.0.2", "127.255.255.254"} {
		to := netip.AddrPortFrom(netip.MustParseAddr(addr), s.addr().Port())
		// The client's own address is another, so that no default source fits.
		from := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 3)}
		conn, err := net.DialUDP("udp4", from, net.UDPAddrFromAddrPort(to))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		wantEcho(t, conn, "to "+addr)

		c := dialTCP(t, to)
		c.ask("to " + addr)
		c.want("to " + addr)
	}
}

func TestReplyControl(t *testing.T) {
	const eth = 7 // an interface's index
	v4 := func(index int32, addr string) []byte {
		a := netip.MustParseAddr(addr).As4()
		return unix.PktInfo4(&unix.Inet4Pktinfo{Ifindex: index, Spec_dst: a, Addr: a})
	}
	v6 := func(index uint32, addr string) []byte {
		return unix.PktInfo6(&unix.Inet6Pktinfo{Ifindex: index, Addr: netip.MustParseAddr(addr).As16()})
	}
	tests := map[string]struct{ control, want []byte }{
		"IPv4: the address, any interface":               {v4(eth, "10.96.0.10"), v4(0, "10.96.0.10")},
		"IPv6: the address, any interface":               {v6(eth, "fd00::10"), v6(0, "fd00::10")},
		"IPv6: a link-local address needs its interface": {v6(eth, "fe80::10"), v6(eth, "fe80::10")},
		"no message":           {nil, nil},
		"a message cut short":  {v4(eth, "10.96.0.10")[:20], nil},
		"a message of another": {unix.UnixRights(0, 1, 2), nil},
	}
	for claim, tt := range tests {
		t.Run(claim, func(t *testing.T) {
			if got := dnsserver.ReplyControl(slices.Clone(tt.control)); !slices.Equal(got, tt.want) {
				t.Errorf("replyControl(% x) = % x, want % x", tt.control, got, tt.want)
			}
		})
	}
}
