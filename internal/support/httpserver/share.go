package httpserver

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"portolan.dev/portolan/internal/support/bind"
)

const (
	// patience is for how long listenTCP tries again if nothing answers at an address in use: what has
	// it may not serve it yet, or be about to end.
	patience = 10 * time.Second
	// askPause is the time between two attempts.
	askPause = 100 * time.Millisecond
	// askTimeout is for the response of the server that has the address.
	askTimeout = 2 * time.Second
)

// unknown is what programAt returns for servers that do not name their program.
const unknown = "a process that does not answer as a Portolan process"

// listenTCP binds an address. If it is in use, it is shared only with a server of the same program.
// If nothing answers there, listenTCP tries again until its patience or ctx ends.
//
// The kernel shares ports among all processes of a user that ask for it. Thus a socket is bound
// alone at first, which fails beside any other socket, and is open for sharing from then on.
func listenTCP(ctx context.Context, address, program string) (net.Listener, error) {
	if program == "" {
		return new(net.ListenConfig).Listen(ctx, "tcp", address)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
		if err == nil {
			return l, bind.Share(l)
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return nil, err
		}
		switch other := programAt(ctx, address); other {
		case program:
			return (&net.ListenConfig{Control: bind.SharePort}).Listen(ctx, "tcp", address)
		case "": // it may have ended, or not serve yet
		default:
			return nil, fmt.Errorf("%w by %s", reason(err), other)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w by %s", reason(err), unknown)
		case <-time.After(askPause):
		}
	}
}

// programAt returns which program serves HTTP at an address; empty if nothing answers there. For an
// unspecified address it asks at the loopback addresses: [::] has IPv4 as well, and IPv6 may be
// disabled.
func programAt(ctx context.Context, address string) string {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return ""
	}
	hosts := []netip.Addr{at.Addr()}
	if at.Addr().IsUnspecified() {
		hosts = []netip.Addr{netip.IPv6Loopback(), netip.AddrFrom4([4]byte{127, 0, 0, 1})}
		if at.Addr().Is4() {
			hosts = hosts[1:]
		}
	}
	for _, host := range hosts {
		if name := ask(ctx, netip.AddrPortFrom(host, at.Port())); name != "" {
			return name
		}
	}
	return ""
}

// ask returns which program serves HTTP at an address that is not unspecified; empty if nothing
// answers there.
func ask(ctx context.Context, at netip.AddrPort) string {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", at.String())
	if err != nil {
		return ""
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	request, err := http.NewRequestWithContext(ctx, http.MethodHead, "http://"+at.String()+"/", http.NoBody)
	if err == nil {
		err = request.Write(conn)
	}
	if err != nil {
		return ""
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), request)
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	return cmp.Or(response.Header.Get("Server"), unknown)
}
