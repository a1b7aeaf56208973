package httpserver

import (
	"bufio"
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

// askTimeout is for the response of the server that has the address.
const askTimeout = 5 * time.Second

// listenTCP binds an address. If it is in use, it is shared only with a server of the same program.
//
// The kernel shares ports among all processes of a user that ask for it. Thus a socket is bound
// alone at first, which fails beside any other socket, and is open for sharing from then on.
func listenTCP(ctx context.Context, address, program string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if program == "" {
		return l, err
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		switch other := programAt(ctx, address); other {
		case program:
			return (&net.ListenConfig{Control: bind.SharePort}).Listen(ctx, "tcp", address)
		case "": // it may have ended
			l, err = new(net.ListenConfig).Listen(ctx, "tcp", address)
		default:
			return nil, fmt.Errorf("%w by %s", reason(err), other)
		}
	}
	if err != nil {
		return nil, err
	}
	return l, bind.Share(l)
}

// programAt returns which program serves HTTP at an address; empty if that is not known.
func programAt(ctx context.Context, address string) string {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return ""
	}
	if at.Addr().IsUnspecified() {
		loopback := netip.IPv6Loopback()
		if at.Addr().Is4() {
			loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		}
		at = netip.AddrPortFrom(loopback, at.Port())
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", at.String())
	if err != nil {
		return ""
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(askTimeout))
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
	return response.Header.Get("Server")
}
