package upstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"portolan.dev/portolan/internal/gateway/table"
)

// sessionsKept is how many TLS sessions with an endpoint are kept to be resumed.
const sessionsKept = 8

// ClientConfig returns how TLS is spoken with endpoints of an upstream. The certificate is that of the gateway, nil for
// none. It fails if by is broken, or has no certificate of an authority where it should.
func ClientConfig(by *table.TLS, certificate *tls.Certificate) (*tls.Config, error) {
	if by.Broken != "" {
		return nil, errors.New(by.Broken)
	}
	config := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         by.ServerName,
		ClientSessionCache: tls.NewLRUClientSessionCache(sessionsKept),
	}
	if by.Authorities != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM([]byte(by.Authorities)) {
			return nil, errors.New("no certificate of an authority")
		}
	}
	if certificate != nil {
		config.Certificates = []tls.Certificate{*certificate}
	}
	if by.Names != "" { // which count in place of the server name
		config.InsecureSkipVerify = true
		config.VerifyConnection = func(state tls.ConnectionState) error {
			return verifyNames(&state, config.RootCAs, by.Names)
		}
	}
	return config, nil
}

// verifyNames verifies the certificate of an endpoint, which must have one of some names (BackendTLSPolicyValidation,
// subjectAltNames).
func verifyNames(state *tls.ConnectionState, roots *x509.CertPool, names string) error {
	leaf := state.PeerCertificates[0]
	options := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
	for _, c := range state.PeerCertificates[1:] {
		options.Intermediates.AddCert(c)
	}
	if _, err := leaf.Verify(options); err != nil {
		return err
	}
	for name := range strings.SplitSeq(names, "\n") {
		if hostname, ok := strings.CutPrefix(name, "DNS "); ok && hasName(leaf, hostname) {
			return nil
		}
		if uri, ok := strings.CutPrefix(name, "URI "); ok && hasURI(leaf, uri) {
			return nil
		}
	}
	return fmt.Errorf("the certificate has none of the names %s", strings.ReplaceAll(names, "\n", ", "))
}

// hasName reports whether a certificate has a hostname, or a wildcard as it is.
func hasName(c *x509.Certificate, hostname string) bool {
	for _, name := range c.DNSNames {
		if strings.EqualFold(name, hostname) {
			return true
		}
	}
	return !strings.HasPrefix(hostname, "*") && c.VerifyHostname(hostname) == nil
}

func hasURI(c *x509.Certificate, uri string) bool {
	for _, u := range c.URIs {
		if u.String() == uri {
			return true
		}
	}
	return false
}

// handshake begins TLS over a connection, which it closes if that fails.
func handshake(ctx context.Context, nc net.Conn, config *tls.Config, deadline time.Time) (net.Conn, error) {
	conn := tls.Client(nc, config)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		nc.Close()
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return conn, nil
}

// quiet reports whether nothing can be read from a connection that is not in use, see wire.Receiver.Quiet. With TLS
// there is neither a record nor a part of one.
func (c *conn) quiet() bool {
	secure, ok := c.Conn.(*tls.Conn)
	if !ok {
		return c.from.Quiet()
	}
	if under, ok := secure.NetConn().(syscall.Conn); ok && !silent(under) {
		return false
	}
	_ = c.SetReadDeadline(time.Now()) // so that it reads nothing but what was decrypted
	var octet [1]byte
	n, err := c.Read(octet[:])
	_ = c.SetReadDeadline(time.Time{})
	return n == 0 && errors.Is(err, os.ErrDeadlineExceeded)
}

// silent reports whether the kernel has nothing of a connection, not even its end.
func silent(c syscall.Conn) (is bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Read(func(fd uintptr) bool {
		is = hasNothing(fd)
		return true
	})
	return is && err == nil
}
