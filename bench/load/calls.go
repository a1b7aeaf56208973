package load

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// tlsConfig returns a configuration that trusts the certificates in a file. Every
// session is new. The key exchange is one that all servers support.
func (g *generator) tlsConfig() (*tls.Config, error) {
	text, err := os.ReadFile(g.Roots)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s: no certificate", g.Roots)
	}
	return &tls.Config{
		RootCAs:          roots,
		ServerName:       g.Server.Addr().String(),
		CurvePreferences: []tls.CurveID{tls.X25519},
	}, nil
}

// call is the result of a query on its own connection.
type call struct {
	answer []byte
	err    error
}

// tlsConnectionLoop sends each query on a new TLS connection, with as many at once as
// there are sockets. Handshakes are so expensive for a server that the cost of waking
// goroutines does not matter.
func (g *generator) tlsConnectionLoop() (first, last *moment, err error) {
	config, err := g.tlsConfig()
	if err != nil {
		return nil, nil, err
	}
	var callers sync.WaitGroup
	defer callers.Wait()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan call)
	for i := range g.Sockets {
		callers.Go(func() {
			for n := i; ctx.Err() == nil; n += g.Sockets {
				answer, err := g.call(ctx, config, n)
				select {
				case done <- call{answer, err}:
				case <-ctx.Done():
				}
			}
		})
	}
	return g.measured(func(time.Duration) error {
		c := <-done // arrives at the latest after the timeout
		var late net.Error
		switch {
		case errors.As(c.err, &late) && late.Timeout():
			g.lost++
		case c.err != nil:
			return g.errorAt(c.err)
		case !isAnswer(c.answer):
			return g.errorAt(errors.New("no answer"))
		default:
			g.count(c.answer)
		}
		return nil
	})
}

// call sends the n-th query.
func (g *generator) call(ctx context.Context, config *tls.Config, n int) (answer []byte, err error) {
	source := source(n)
	dialer := tls.Dialer{
		Config:    config,
		NetDialer: &net.Dialer{Timeout: g.patience, LocalAddr: &net.TCPAddr{IP: source[:]}},
	}
	conn, err := dialer.DialContext(ctx, "tcp", g.Server.String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(g.patience)); err != nil {
		return nil, err
	}
	return ExchangeStream(conn, g.queries[n%len(g.queries)])
}

// ExchangeStream sends one query over a stream and reads one answer.
func ExchangeStream(stream io.ReadWriter, query []byte) (answer []byte, err error) {
	if _, err := stream.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(query))), query...)); err != nil {
		return nil, err
	}
	var length [2]byte
	if _, err := io.ReadFull(stream, length[:]); err != nil {
		return nil, err
	}
	answer = make([]byte, binary.BigEndian.Uint16(length[:]))
	_, err = io.ReadFull(stream, answer)
	return answer, err
}
