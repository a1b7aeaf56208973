package secondary

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"time"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/forward"
)

// Timeouts of the steps of a transfer: connecting, with the TLS handshake; the
// first message, because a transfer may wait for its turn at the primary; each
// further message; the whole transfer.
const (
	dialTime     = 3 * time.Second
	firstTime    = 10 * time.Second
	messageTime  = 5 * time.Second
	transferTime = 2 * time.Minute
)

// conn is a connection to a primary, for one transfer at a time.
type conn struct {
	net.Conn
	in   *bufio.Reader
	buf  []byte // the last message
	used bool   // a message was received
}

func dial(ctx context.Context, to forward.Upstream, config *tls.Config) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", to.Addr.String())
	if err != nil {
		return nil, err
	}
	if to.Transport == forward.TLS {
		secure := tls.Client(c, tlsConfig(to, config))
		if err := secure.HandshakeContext(ctx); err != nil {
			c.Close()
			return nil, err
		}
		c = secure
	}
	return &conn{Conn: c, in: bufio.NewReaderSize(c, 1<<14)}, nil
}

// tlsConfig returns base with the primary's name (RFC 8310): the configured one
// or its address.
func tlsConfig(to forward.Upstream, base *tls.Config) *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if base != nil {
		config = base.Clone()
	}
	config.ServerName = to.ServerName
	if config.ServerName == "" {
		config.ServerName = to.Addr.Addr().WithZone("").String()
	}
	return config
}

// next reads a message, waiting for at most within and not beyond until. The
// message is valid until the next call.
func (c *conn) next(within time.Duration, until time.Time) ([]byte, error) {
	if soon := time.Now().Add(within); soon.Before(until) {
		until = soon
	}
	if err := c.SetReadDeadline(until); err != nil {
		return nil, err
	}
	var length [2]byte
	if _, err := io.ReadFull(c.in, length[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint16(length[:]))
	if cap(c.buf) < n {
		c.buf = make([]byte, n)
	}
	if _, err := io.ReadFull(c.in, c.buf[:n]); err != nil {
		return nil, err
	}
	c.used = true
	return c.buf[:n], nil
}

func (c *conn) send(message []byte) error {
	if err := c.SetWriteDeadline(time.Now().Add(messageTime)); err != nil {
		return err
	}
	framed := binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(message)), uint16(len(message)))
	_, err := c.Write(append(framed, message...))
	return err
}

// refusal is a reply with an error code.
type refusal struct {
	rcode dnswire.RCode
	why   string // the text of its Extended DNS Error; may be empty
}

func (r *refusal) Error() string {
	if r.why == "" {
		return "the server replied " + r.rcode.String()
	}
	return fmt.Sprintf("the server replied %s: %q", r.rcode, r.why)
}

// transfer requests a zone, or the changes since has if that is not nil, and
// reads the whole reply. If it fails, nothing of the reply is used.
func (r *Secondary) transfer(ctx context.Context, c *conn, name dnsname.Name, has *dnswire.SOA) (*answer, error) {
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	id := uint16(rand.Uint32())
	query := dnswire.AppendTransferQuery(nil, id, name, has, dnswire.OptionMetadata)
	var signed *dnswire.TSIGExchange
	if key := r.key(); key != nil {
		signed = key.NewExchange()
		query = signed.Sign(query, time.Now())
	}
	if err := c.send(query); err != nil {
		return nil, err
	}
	read := &reader{zone: name, has: has, limits: r.cfg.Limits}
	until, within := time.Now().Add(transferTime), firstTime
	for last := false; !last; within = messageTime {
		message, err := c.next(within, until)
		if err != nil {
			return nil, err
		}
		if last, err = read.message(message, id, signed); err != nil {
			return nil, err
		}
	}
	if signed != nil && !signed.LastSigned() {
		return nil, fmt.Errorf("at the end of the transfer: %w", dnswire.ErrUnsigned)
	}
	return &read.answer, nil
}

// message parses and verifies one message.
func (r *reader) message(message []byte, id uint16, signed *dnswire.TSIGExchange) (last bool, err error) {
	if len(message) < dnswire.HeaderLen || binary.BigEndian.Uint16(message) != id {
		return false, fmt.Errorf("%w: a reply to another query", errStream)
	}
	if signed != nil {
		if err := signed.Verify(message, time.Now()); err != nil {
			return false, err
		}
	}
	part, err := dnswire.ParseTransferReply(message)
	if err != nil {
		return false, fmt.Errorf("%w: %w", errStream, err)
	}
	if part.RCode != dnswire.NoError {
		refused := &refusal{rcode: part.RCode}
		if part.EDE != nil {
			refused.why = part.EDE.Text
		}
		return false, refused
	}
	return r.read(part, len(message))
}
