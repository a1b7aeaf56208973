package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// maxProbe is the longest response body that is read, in octets.
const maxProbe = 64 << 10

// probe sends a request for a path to one of the addresses of admin.probes,
// ADDRESS:PORT or unix:PATH. It returns the text of the response and reports whether
// its status is good. The text ends with a line feed unless it is empty.
func probe(ctx context.Context, address, path string) (words string, good bool, err error) {
	network, at := "tcp", address
	if file, is := strings.CutPrefix(address, "unix:"); is {
		network, at = "unix", file
	} else if _, err := netip.ParseAddrPort(address); err != nil {
		return "", false, fmt.Errorf("%q is not an address and port, such as 127.0.0.1:8080, or unix:PATH", address)
	}
	client := http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, at)
		},
	}}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://probes"+path, nil)
	if err != nil {
		return "", false, err
	}
	response, err := client.Do(request)
	if err != nil {
		if outer, ok := errors.AsType[*url.Error](err); ok { // without the placeholder URL
			err = outer.Err
		}
		return fmt.Sprintf("no answer: %v\n", err), false, nil
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxProbe))
	if err != nil {
		return "", false, fmt.Errorf("probe: %w", err)
	}
	return string(text), response.StatusCode == http.StatusOK, nil
}
