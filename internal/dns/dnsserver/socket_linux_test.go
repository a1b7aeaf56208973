package dnsserver_test

import (
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/dns/dnsserver"
	"portolan.dev/portolan/internal/dns/respond"
)

// tellICMPErrors makes the system report ICMP errors on the socket, which by default it
// does only for connected sockets.
func tellICMPErrors(t *testing.T, conn *net.UDPConn) {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var setErr error
	err = raw.Control(func(fd uintptr) { setErr = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_RECVERR, 1) })
	if err != nil || setErr != nil {
		t.Fatalf("IP_RECVERR: %v, %v", err, setErr)
	}
}

// TestOneQueryAtATime checks that other goroutines run on a single processor while a
// client sends each query when it has the answer, and that the garbage collector, which
// stops all goroutines, does not wait for the next query.
func TestOneQueryAtATime(t *testing.T) {
	const queries = 300
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	s := start(t, dnsserver.Config{}, func(packet []byte, _ respond.Client, buf []byte) []byte {
		return append(buf, packet...)
	})
	conn := dialUDP(t, s.addr())
	var worked atomic.Int32
	answer := make([]byte, 10)
	for i := range queries {
		if _, err := conn.Write([]byte("query")); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(answer); err != nil {
			t.Fatal(err)
		}
		if i%10 == 0 {
			go worked.Add(1)
		}
	}
	runtime.GC()
	for end := time.Now().Add(patience); worked.Load() < queries/10; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d of %d goroutines ran", worked.Load(), queries/10)
		}
	}
}

// TestUDPYieldsToOtherGoroutines checks that other goroutines run on a single processor
// while packets arrive all the time.
func TestUDPYieldsToOtherGoroutines(t *testing.T) {
	const packets = 500
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var answered int
	var worked atomic.Bool
	done := make(chan bool, 1)
	s := listen(t, dnsserver.Config{}, func(_ []byte, _ respond.Client, _ []byte) []byte {
		if answered == 0 {
			go worked.Store(true)
		}
		if answered++; answered == packets {
			done <- worked.Load()
		}
		return nil
	})
	s.KeepOneUDPSocket()
	conn := dialUDP(t, s.addr())
	for range packets {
		if _, err := conn.Write([]byte("query")); err != nil {
			t.Fatal(err)
		}
	}
	s.run()
	if !receive(t, done, "the last packet") {
		t.Errorf("a goroutine had to wait until %d packets were answered", packets)
	}
}

// TestUDPIgnoresICMPErrors checks that an ICMP error for an answer to a closed port has
// no effect.
func TestUDPIgnoresICMPErrors(t *testing.T) {
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
	tellICMPErrors(t, s.KeepOneUDPSocket())
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

// TestUDPQueryLengthLimit checks that longer queries are truncated.
func TestUDPQueryLengthLimit(t *testing.T) {
	s := start(t, dnsserver.Config{}, echo)
	conn := dialUDP(t, s.addr())
	for _, length := range []int{dnsserver.MaxUDPQuery, dnsserver.MaxUDPQuery + 1, 65507} {
		got, err := exchange(conn, longest[:length])
		if want := min(length, dnsserver.MaxUDPQuery); err != nil || len(got) != want {
			t.Errorf("of %d octets %d came in (%v), want %d", length, len(got), err, want)
		}
	}
}

// TestReceiveBuffer checks that the receive buffer is larger than the system's default,
// as far as the system allows.
func TestReceiveBuffer(t *testing.T) {
	text, err := os.ReadFile("/proc/sys/net/core/rmem_max")
	if err != nil {
		t.Skip(err)
	}
	allowed, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	s := listen(t, dnsserver.Config{}, echo)
	defer s.Close()
	raw, err := s.KeepOneUDPSocket().SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var got int
	var getErr error
	err = raw.Control(func(fd uintptr) { got, getErr = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF) })
	if err != nil || getErr != nil {
		t.Fatalf("SO_RCVBUF: %v, %v", err, getErr)
	}
	if want := 2 * min(dnsserver.ReceiveBuffer, allowed); got < want {
		t.Errorf("receive buffer of %d octets, want %d", got, want)
	}
}

// TestSteering checks that packets are delivered to the socket of the processor that
// receives them, which over loopback is the client's.
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
				for s.TakePacket(socket) {
					if socket != i {
						strays++
					}
				}
			}
		}
		if wants := steering == dnsserver.SteerByHash; (strays > 0) != wants {
			t.Errorf("steering by %s: %d packets came to the socket of another processor", steering, strays)
		}
		s.Close()
	}
}

// TestUnspecifiedAddressAnswersFromTheQueriedAddress uses a connected socket, which
// receives packets from that address only.
func TestUnspecifiedAddressAnswersFromTheQueriedAddress(t *testing.T) {
	s := start(t, dnsserver.Config{Listen: []netip.AddrPort{netip.MustParseAddrPort("0.0.0.0:0")}}, echo)
	for _, addr := range []string{"127.0.0.1", "127.0.0.2", "127.255.255.254"} {
		to := netip.AddrPortFrom(netip.MustParseAddr(addr), s.addr().Port())
		// The client has a different address, so that a default source address does not
		// match.
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
	const eth = 7 // the index of an interface
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
