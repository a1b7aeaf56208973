package querylog

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"time"

	dnstap "github.com/dnstap/golang-dnstap"
	framestream "github.com/farsightsec/golang-framestream"
	"google.golang.org/protobuf/proto"

	"portolan.dev/portolan/internal/dns/respond"
)

// Tap is the destination of dnstap messages and the identity of their sender.
type Tap struct {
	// Network and Address are those of the collector: unix and a path, or tcp and an
	// address with a port. Empty turns dnstap off.
	Network, Address string
	// Identity and Version are sent with each message.
	Identity, Version string
}

// ParseTap parses unix:PATH or tcp:ADDRESS:PORT. Two slashes may follow the first
// colon.
func ParseTap(s string) (network, address string, ok bool) {
	network, address, _ = strings.Cut(s, ":")
	address = strings.TrimPrefix(address, "//")
	switch network {
	case "unix":
		return network, address, address != ""
	case "tcp":
		_, err := netip.ParseAddrPort(address)
		return network, address, err == nil
	}
	return "", "", false
}

// frames returns the messages for a query and for its answer, if there is one.
func (t *Tap) frames(o *respond.Observation) (frames [][]byte) {
	query := t.message(o, dnstap.Message_CLIENT_QUERY)
	query.QueryMessage = o.Query
	frames = t.append(frames, query)
	if o.Answer != nil {
		answer := t.message(o, dnstap.Message_CLIENT_RESPONSE)
		answer.ResponseMessage = o.Answer
		at := o.Began.Add(o.Elapsed)
		answer.ResponseTimeSec = new(uint64(at.Unix()))
		answer.ResponseTimeNsec = new(uint32(at.Nanosecond()))
		frames = t.append(frames, answer)
	}
	return frames
}

// protocols maps transports to dnstap's protocols.
var protocols = map[respond.Transport]dnstap.SocketProtocol{
	respond.UDP: dnstap.SocketProtocol_UDP, respond.TCP: dnstap.SocketProtocol_TCP,
	respond.TLS: dnstap.SocketProtocol_DOT, respond.HTTPS: dnstap.SocketProtocol_DOH,
}

func (t *Tap) message(o *respond.Observation, kind dnstap.Message_Type) *dnstap.Message {
	family := dnstap.SocketFamily_INET6
	if o.Client.Addr.Is4() {
		family = dnstap.SocketFamily_INET
	}
	return &dnstap.Message{
		Type: &kind, SocketFamily: &family, SocketProtocol: protocols[o.Client.Transport].Enum(),
		QueryAddress: o.Client.Addr.AsSlice(), QueryPort: new(uint32(o.Client.Port)),
		QueryTimeSec: new(uint64(o.Began.Unix())), QueryTimeNsec: new(uint32(o.Began.Nanosecond())),
	}
}

func (t *Tap) append(frames [][]byte, m *dnstap.Message) [][]byte {
	frame, err := proto.Marshal(&dnstap.Dnstap{
		Identity: []byte(t.Identity), Version: []byte(t.Version), Type: dnstap.Dnstap_MESSAGE.Enum(), Message: m,
	})
	if err != nil { // never happens with messages made here
		return frames
	}
	return append(frames, frame)
}

// tapTimeout limits connecting, each write, and sending the queued frames at the end.
// tapRetry is the interval between connection attempts. tapFlush is the longest time
// for which a frame is buffered.
const (
	tapTimeout = time.Second
	tapRetry   = time.Second
	tapFlush   = time.Second
)

// collector is a dnstap collector with the queue of frames to send to it.
type collector struct {
	network, address string
	frames           chan []byte
}

func newCollector(t *Tap) *collector {
	return &collector{t.Network, t.Address, make(chan []byte, queueLen)}
}

// isAt reports whether c has the address of t.
func (c *collector) isAt(t *Tap) bool { return c.network == t.Network && c.address == t.Address }

// run sends frames until ctx is done and returns the number of unsent frames. It
// reconnects to an unreachable collector at intervals, and once when ctx is done.
// Meanwhile the queue fills, and further frames are dropped.
func (c *collector) run(ctx context.Context, log *slog.Logger) (left uint64) {
	failed := false
	for {
		err := c.send(ctx)
		if ctx.Err() != nil {
			return uint64(len(c.frames))
		}
		if !failed {
			log.Warn("dnstap collector is gone", "address", c.address, "err", err)
		}
		failed = true
		select {
		case <-ctx.Done():
		case <-time.After(tapRetry):
		}
	}
}

// send connects to the collector and sends frames until the connection fails, or ctx is
// done and the queue is empty.
func (c *collector) send(ctx context.Context) error {
	d := net.Dialer{Timeout: tapTimeout}
	conn, err := d.DialContext(context.WithoutCancel(ctx), c.network, c.address)
	if err != nil {
		return err
	}
	defer conn.Close()
	w, err := framestream.NewWriter(conn, &framestream.WriterOptions{
		ContentTypes: [][]byte{dnstap.FSContentType}, Bidirectional: true, Timeout: tapTimeout,
	})
	if err != nil {
		return err
	}
	ticker := time.NewTicker(tapFlush)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			defer time.AfterFunc(tapTimeout, func() { conn.Close() }).Stop()
			for range len(c.frames) {
				if _, err := w.WriteFrame(<-c.frames); err != nil {
					return err
				}
			}
			return w.Close()
		case frame := <-c.frames:
			if _, err := w.WriteFrame(frame); err != nil {
				return err
			}
		case <-ticker.C:
			if err := w.Flush(); err != nil {
				return err
			}
		}
	}
}
