package secondaries

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// apex is the zone that the followers transfer.
var apex = dnsname.MustParse("cluster.local")

// patience is the timeout of each step of an exchange.
const patience = 30 * time.Second

// counts are the totals of all followers.
type counts struct {
	notices, transfers, messages atomic.Int64
	noticeOctets, asked, sent    atomic.Int64 // asked and sent: over TCP, from and to the followers
}

// follower behaves like a replica without storing the zone: it answers NOTIFY (RFC
// 1996) and, while asks is set, requests the changes each time (IXFR, RFC 1995) over
// one connection. It checks the signature and the form of all messages.
type follower struct {
	key    *dnswire.TSIGKey
	udp    *net.UDPConn
	counts *counts
	asks   *atomic.Bool // shared by all

	*stream
	soa *dnswire.SOA // the SOA record of the current copy
}

// listen listens for NOTIFY on a loopback address on which all ports are free, because
// servers use the usual one.
func listen() (*net.UDPConn, error) {
	return net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 2)})
}

func addressOf(udp *net.UDPConn) netip.AddrPort { return udp.LocalAddr().(*net.UDPAddr).AddrPort() }

func (f *follower) close() { f.udp.Close() }

// run answers NOTIFY and requests changes until ctx is done.
func (f *follower) run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, f.close)
	defer stop()
	var packet [dnswire.MaxMessage]byte
	for {
		n, from, err := f.udp.ReadFromUDPAddrPort(packet[:])
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			err = f.notified(packet[:n], from)
		}
		if err == nil && f.asks.Load() {
			err = f.follow()
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// notified verifies a NOTIFY and sends a signed answer.
func (f *follower) notified(packet []byte, from netip.AddrPort) error {
	exchange := f.key.NewExchange()
	if err := exchange.Verify(packet, time.Now()); err != nil {
		return fmt.Errorf("notify: %w", err)
	}
	var q dnswire.Query
	if err := errors.Join(q.ParseHeader(packet), q.ParseBody(packet)); err != nil {
		return fmt.Errorf("notify: %w", err)
	}
	answer := append(make([]byte, dnswire.HeaderLen, 512), q.Question...)
	copy(answer, packet[:4])
	answer[2] |= byte(dnswire.FlagQR >> 8)
	answer[5] = 1
	f.counts.notices.Add(1)
	answer = exchange.Sign(answer, time.Now())
	f.counts.noticeOctets.Add(int64(len(packet) + len(answer)))
	_, err := f.udp.WriteToUDPAddrPort(answer, from)
	return err
}

// follow requests the changes.
func (f *follower) follow() error {
	got, err := f.transfer(f.key, f.soa)
	if err != nil {
		return fmt.Errorf("transfer: %w", err)
	}
	f.soa = &got.soa
	f.counts.asked.Add(int64(got.asked))
	f.counts.sent.Add(int64(got.octets))
	f.counts.messages.Add(int64(got.messages))
	if got.isWhole {
		return errWhole
	}
	f.counts.transfers.Add(1)
	return nil
}

// errWhole means that a follower was too far behind for an incremental transfer.
var errWhole = errors.New("the server sent the whole zone")

// stream is a connection to a server.
type stream struct {
	net.Conn
	in  *bufio.Reader
	buf []byte
}

func dial(server netip.AddrPort) (*stream, error) {
	c, err := net.DialTimeout("tcp", server.String(), patience)
	if err != nil {
		return nil, err
	}
	return &stream{Conn: c, in: bufio.NewReaderSize(c, 16<<10)}, nil
}

// transferred is the result of a transfer. octets counts the messages with their
// lengths on the connection.
type transferred struct {
	soa                     dnswire.SOA
	asked, octets, messages int
	isWhole                 bool
}

// ask sends a signed query for the changes since has, or for the whole zone if has is
// nil.
func (s *stream) ask(k *dnswire.TSIGKey, has *dnswire.SOA) (exchange *dnswire.TSIGExchange, octets int, err error) {
	const lengthLen = 2
	exchange = k.NewExchange()
	query := dnswire.AppendTransferQuery(nil, uint16(rand.Uint32()), apex, has, dnswire.OptionMetadata)
	query = exchange.Sign(query, time.Now())
	framed := append(binary.BigEndian.AppendUint16(make([]byte, 0, lengthLen+len(query)), uint16(len(query))), query...)
	if err := s.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, 0, err
	}
	octets, err = s.Write(framed)
	return exchange, octets, err
}

// next returns the next message, which is valid until the following call.
func (s *stream) next() ([]byte, error) {
	var length [2]byte
	if _, err := io.ReadFull(s.in, length[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint16(length[:]))
	if cap(s.buf) < n {
		s.buf = make([]byte, n)
	}
	_, err := io.ReadFull(s.in, s.buf[:n])
	return s.buf[:n], err
}

// transfer sends a query, reads the answer to its end, and checks signatures and form.
func (s *stream) transfer(k *dnswire.TSIGKey, has *dnswire.SOA) (*transferred, error) {
	exchange, asked, err := s.ask(k, has)
	if err != nil {
		return nil, err
	}
	t, r := &transferred{asked: asked}, &reading{has: has}
	for !r.ended {
		message, err := s.next()
		if err != nil {
			return nil, err
		}
		if err := exchange.Verify(message, time.Now()); err != nil {
			return nil, err
		}
		t.octets += 2 + len(message)
		t.messages++
		if err := r.message(message); err != nil {
			return nil, err
		}
	}
	if !exchange.LastSigned() {
		return nil, dnswire.ErrUnsigned
	}
	t.soa, t.isWhole = r.soa, !r.differs && r.records > 1
	return t, nil
}
