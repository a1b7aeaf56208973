package calls

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Connection is a connection to a proxy, for one request at a time.
type Connection struct {
	conn    net.Conn
	in      *bufio.Reader
	request []byte
}

// patience is how long a response may take.
const patience = 10 * time.Second

// Target is where a connection goes.
type Target struct {
	Address netip.AddrPort
	From    netip.Addr // of this machine; if it is not valid, the kernel chooses
	Secure  *Secure    // nil for no TLS
}

// Secure is what connections over TLS agree on: TLS 1.3 with X25519, without resumption, HTTP/1.1.
type Secure struct {
	Host  string
	Roots []byte // PEM; one of them has signed the certificate
}

func (s *Secure) config() *tls.Config {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.Roots)
	return &tls.Config{
		ServerName: s.Host, RootCAs: roots, MinVersion: tls.VersionTLS13, CurvePreferences: []tls.CurveID{tls.X25519},
	}
}

// Dial connects, for requests with this text.
func Dial(to Target, request string) (*Connection, error) {
	dialer := net.Dialer{Timeout: patience}
	if to.From.IsValid() {
		dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(to.From, 0))
	}
	conn, err := dialer.Dial("tcp", to.Address.String())
	if err != nil {
		return nil, err
	}
	if to.Secure != nil {
		conn = tls.Client(conn, to.Secure.config()) // Call does the handshake
	}
	const buffer = 64 << 10
	return &Connection{conn, bufio.NewReaderSize(conn, buffer), []byte(request)}, nil
}

// Request is the text of a request without a body.
func Request(host, path string) string {
	return fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: portolan-bench\r\nAccept: */*\r\n\r\n", path, host)
}

// Call sends the request and reads the response. It returns its status and the location that it names.
func (c *Connection) Call() (status int, location string, err error) {
	if err := c.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return 0, "", err
	}
	if _, err := c.conn.Write(c.request); err != nil {
		return 0, "", err
	}
	length := -1
	for first := true; ; first = false {
		octets, err := c.in.ReadSlice('\n')
		if err != nil {
			return 0, "", err
		}
		line := strings.TrimRight(string(octets), "\r\n")
		if line == "" {
			break
		}
		if first {
			const protocol = "HTTP/1.1 "
			number, _, _ := strings.Cut(strings.TrimPrefix(line, protocol), " ")
			if status, err = strconv.Atoi(number); err != nil {
				return 0, "", err
			}
			continue
		}
		name, value, _ := strings.Cut(line, ": ")
		switch {
		case strings.EqualFold(name, "Content-Length"):
			if length, err = strconv.Atoi(value); err != nil {
				return 0, "", err
			}
		case strings.EqualFold(name, "Location"):
			location = value
		}
	}
	if length < 0 {
		return 0, "", errors.New("the response has no Content-Length")
	}
	_, err = c.in.Discard(length)
	return status, location, err
}

// Close closes the connection.
func (c *Connection) Close() error { return c.conn.Close() }
