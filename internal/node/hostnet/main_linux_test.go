package hostnet_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/node/hostnet"
)

// asAgent is the environment variable that makes the test's program an agent. It holds
// the agent's settings.
const asAgent = "PORTOLAN_NODENET_AGENT"

// settings are those of an agent.
type settings struct {
	Name      string // the name in its answers
	Addresses []netip.Addr
	Lasting   string // the kind of the persistent device; "" for none
}

const port = 53

// drainFor is how long the agent waits for packets that arrived before.
const drainFor = 20 * time.Millisecond

func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv(asAgent); ok {
		if err := agent(text); err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// agent installs the network, answers and repairs until it is told to stop. It reports
// on stdout when it serves.
func agent(text string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var s settings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	cfg := hostnet.Config{Addresses: s.Addresses, Port: port, Prefix: "portolan", Log: slog.New(slog.NewTextHandler(os.Stdout, nil))}
	if s.Lasting != "" {
		cfg = cfg.Lasting(s.Lasting)
	}
	n, err := hostnet.Install(cfg)
	if err != nil {
		return err
	}
	var servers []*server
	for _, a := range s.Addresses {
		server, err := listen(netip.AddrPortFrom(a, port), s.Name)
		if err != nil {
			return err
		}
		servers = append(servers, server)
	}
	if err := n.Divert(); err != nil {
		return err
	}
	fmt.Println("serving on", n.Device())
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return n.Run(ctx) })
	<-ctx.Done()
	if err := g.Wait(); err != nil {
		return err
	}
	// New queries are routed to the cluster's servers first; then the agent answers
	// those that arrived.
	if err := n.Undivert(); err != nil {
		return err
	}
	for _, s := range servers {
		if err := s.drain(); err != nil {
			return err
		}
	}
	fmt.Println("repairs:", n.Repairs(), n.Healthy())
	return n.Close()
}

// server answers every query with its name and the question.
type server struct {
	name  string
	udp   *net.UDPConn
	tcp   net.Listener
	ended sync.WaitGroup
}

func listen(at netip.AddrPort, name string) (*server, error) {
	shared := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		ctrlErr := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
		if ctrlErr != nil {
			return ctrlErr
		}
		return err
	}}
	udp, err := shared.ListenPacket(context.Background(), "udp", at.String())
	if err != nil {
		return nil, err
	}
	tcp, err := shared.Listen(context.Background(), "tcp", at.String())
	if err != nil {
		udp.Close()
		return nil, err
	}
	s := &server{name: name, udp: udp.(*net.UDPConn), tcp: tcp}
	s.ended.Go(s.answerUDP)
	go s.answerTCP()
	return s, nil
}

func (s *server) answerUDP() {
	var buf [512]byte
	for {
		n, from, err := s.udp.ReadFromUDPAddrPort(buf[:])
		if err != nil {
			return
		}
		_, _ = s.udp.WriteToUDPAddrPort(append([]byte(s.name+" "), buf[:n]...), from)
	}
}

func (s *server) answerTCP() {
	for {
		conn, err := s.tcp.Accept()
		if err != nil {
			return
		}
		var buf [512]byte
		if n, err := conn.Read(buf[:]); err == nil {
			_, _ = conn.Write(append([]byte(s.name+" "), buf[:n]...))
		}
		conn.Close()
	}
}

// drain stops without losing packets. If other sockets share the port, the kernel
// delivers packets of other clients to those once this UDP socket is connected. Packets
// that arrived before stay in the receive buffer and are answered.
func (s *server) drain() error {
	at := s.udp.LocalAddr().(*net.UDPAddr).AddrPort()
	raw, err := s.udp.SyscallConn()
	if err != nil {
		return err
	}
	peer := unix.Sockaddr(&unix.SockaddrInet6{Addr: at.Addr().As16(), Port: 1})
	if at.Addr().Is4() {
		peer = &unix.SockaddrInet4{Addr: at.Addr().As4(), Port: 1}
	}
	var connectErr error
	if err := raw.Control(func(fd uintptr) { connectErr = unix.Connect(int(fd), peer) }); err != nil || connectErr != nil {
		return fmt.Errorf("connect: %w, %w", err, connectErr)
	}
	// The reader takes the packets in the buffer and then times out.
	if err := s.udp.SetReadDeadline(time.Now().Add(drainFor)); err != nil {
		return err
	}
	s.ended.Wait()
	s.tcp.Close()
	return s.udp.Close()
}
