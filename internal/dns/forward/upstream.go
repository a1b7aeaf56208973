package forward

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"portolan.dev/portolan/internal/dns/cache"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// exchanger sends a query and returns the reply to it: with its ID and its
// question, whose case may differ.
type exchanger interface {
	exchange(ctx context.Context, query []byte) (*dnswire.Reply, error)
	close()
}

// upstream is an Upstream and its state.
type upstream struct {
	Upstream
	packets *udp // nil if the transport is not UDP
	stream  exchanger
	search  dnswire.OptionCode // the EDNS option for search paths

	down      atomic.Bool
	downSince atomic.Int64 // Unix time in nanoseconds
	loop      loop
	foldsCase until // it changes the case of questions
	noEDNS    until // it does not support EDNS
	counts    upstreamCounts
	latency   latencies

	mu          sync.Mutex
	rtt, jitter time.Duration // smoothed; 0 before the first reply
	unanswered  int           // consecutive attempts
	replied     time.Time     // when the last reply came
	failure     error         // of the last attempt that failed with more than errLate
}

type upstreamCounts struct {
	queries, replies, lates, failures, forged atomic.Uint64
	// Connection attempts, and queries over an existing connection.
	opened, reused atomic.Uint64
}

// until is the end of a condition, as Unix time in nanoseconds.
type until struct{ at atomic.Int64 }

func (u *until) holds() bool         { return time.Now().UnixNano() < u.at.Load() }
func (u *until) set(d time.Duration) { u.at.Store(time.Now().Add(d).UnixNano()) }

// habitTime is how long an upstream is assumed to change case or to lack EDNS.
const habitTime = time.Hour

// exchange is Config.Exchange.
type exchange func(ctx context.Context, to Upstream, query []byte) ([]byte, error)

type exchangeHook struct {
	by exchange
	to Upstream
}

func (h exchangeHook) exchange(ctx context.Context, query []byte) (*dnswire.Reply, error) {
	message, err := h.by(ctx, h.to, query)
	if err != nil {
		return nil, err
	}
	return dnswire.ParseReply(message)
}

func (h exchangeHook) close() {}

func newUpstream(u Upstream, suffix dnsname.Name, by exchange, search dnswire.OptionCode) *upstream {
	made := &upstream{Upstream: u, loop: newLoop(suffix), search: search}
	if by != nil {
		made.stream = exchangeHook{by, u}
		return made
	}
	switch u.Transport {
	case UDP:
		made.packets = &udp{of: made}
		made.stream = newStream(u, nil, &made.counts)
	case TCP:
		made.stream = newStream(u, nil, &made.counts)
	case TLS:
		made.stream = newStream(u, tlsConfig(u), &made.counts)
	case HTTPS:
		made.stream = newHTTPS(u, &made.counts)
	}
	return made
}

func (u *upstream) close() { u.stream.close() }

// udpSize is the EDNS buffer size in queries. Longer replies come over TCP
// instead of in fragments (DNS Flag Day 2020).
const udpSize = 1232

// attempt is the use of an upstream for one question.
type attempt struct {
	*upstream
	again    chan struct{} // asks to send the query once more; over UDP only
	repeated atomic.Bool
}

// newAttempt returns an attempt with u.
func newAttempt(u *upstream) *attempt { return &attempt{upstream: u, again: make(chan struct{}, 1)} }

// repeat sends the query once more if that is useful: a query over a connection is
// retransmitted by the system.
func (u *attempt) repeat() {
	if u.packets == nil {
		return
	}
	u.repeated.Store(true)
	select {
	case u.again <- struct{}{}:
	default:
	}
}

// query sends q to the upstream and updates its statistics.
func (u *attempt) query(ctx context.Context, q cache.Key) (*dnswire.Reply, error) {
	began := time.Now()
	u.counts.queries.Add(1)
	reply, err := u.queryWithSubnet(ctx, q)
	switch {
	case err == nil:
		reply.LowercaseOwners()
		u.counts.replies.Add(1)
		took := time.Since(began)
		u.latency.observe(reply.RCode, took)
		if reply.RCode != dnswire.NoError && reply.RCode != dnswire.NXDomain {
			took = max(took, firstPatience) // failing fast is not being fast
		}
		if u.repeated.Load() { // which packet the reply is to is unknown (RFC 6298, section 3)
			took = 0
		}
		u.observe(took)
	case ctx.Err() == nil:
		u.counts.failures.Add(1)
		if !isLocal(err) {
			u.late(err)
		}
		err = &upstreamError{u.Upstream, err}
	}
	return reply, err
}

// queryWithSubnet queries for q, and again without its subnet if u rejects the
// option or replies for another subnet. Such a reply is dropped and does not
// count as a reply of u. A reply to a question without subnet has no Subnet.
func (u *attempt) queryWithSubnet(ctx context.Context, q cache.Key) (*dnswire.Reply, error) {
	reply, err := u.queryWithEDNS(ctx, q)
	switch {
	case err != nil:
		return nil, err
	case q.Subnet != nil && (rejectsOption(reply) || reply.RCode == dnswire.Refused):
	case isForSubnet(q, reply):
		return reply, nil
	default:
		u.counts.forged.Add(1)
	}
	q.Subnet = nil
	return u.queryWithSubnet(ctx, q)
}

// isForSubnet reports whether a reply is for the subnet of q, and sets the
// reply's Subnet to its scope. A reply without the option has scope 0 (RFC
// 7871, section 7.3): it is for clients of all subnets. A reply to a question
// without a prefix is for clients that gave none, whatever its scope.
func isForSubnet(q cache.Key, reply *dnswire.Reply) bool {
	if q.Subnet == nil || !q.Subnet.HasPrefix() || reply.Subnet == nil {
		reply.Subnet = q.Subnet
		return true
	}
	return reply.Subnet.Matches(q.Subnet)
}

// isLocal reports whether an error is due to a limit of this host and does not
// indicate a failure of the upstream.
func isLocal(err error) bool {
	for _, limit := range []error{errTooMany, syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.EADDRNOTAVAIL} {
		if errors.Is(err, limit) {
			return true
		}
	}
	return false
}

// queryWithEDNS queries without EDNS if u does not support it, and finds out
// whether it does. It does not try without EDNS if q has a subnet, because u
// may reject only that option, or a search path, because the question without
// it is another one.
func (u *attempt) queryWithEDNS(ctx context.Context, q cache.Key) (*dnswire.Reply, error) {
	size := uint16(udpSize)
	if u.noEDNS.holds() && q.Search == nil {
		size = 0
	}
	reply, err := u.queryWithCase(ctx, q, size)
	if err == nil && q.Search != nil {
		u.requireSearched(reply)
	}
	if err != nil || size == 0 || q.Subnet != nil || q.Search != nil || reply.EDNS || !rejectsOption(reply) {
		return reply, err
	}
	// RFC 6891, section 7: u may not support EDNS, so try without.
	again, err := u.queryWithCase(ctx, q, 0)
	if err != nil {
		return reply, nil //nolint:nilerr // the first reply stands
	}
	if !rejectsOption(again) {
		u.noEDNS.set(habitTime)
	}
	return again, nil
}

// requireSearched turns a reply into REFUSED if it does not confirm by the
// search option that the server has searched. A server that does not know the
// option has answered for the name alone.
func (u *upstream) requireSearched(reply *dnswire.Reply) {
	if (reply.RCode == dnswire.NoError || reply.RCode == dnswire.NXDomain) && !slices.Contains(reply.Options, u.search) {
		reply.RCode = dnswire.Refused
		reply.EDE = &dnswire.ReplyEDE{
			Code: dnswire.EDEOther,
			Text: fmt.Sprintf("it does not search for names by option %d (autopath.option, autopath.clients)", u.search),
		}
	}
}

func rejectsOption(reply *dnswire.Reply) bool {
	return reply.RCode == dnswire.FormErr || reply.RCode == dnswire.NotImp
}

// queryWithCase queries with a name in random case over UDP, which makes replies harder
// to forge (RFC 5452, section 4), unless u does not preserve case. size is the size of
// UDP replies for EDNS, 0 for none.
func (u *attempt) queryWithCase(ctx context.Context, q cache.Key, size uint16) (*dnswire.Reply, error) {
	if u.packets == nil || u.foldsCase.holds() {
		return u.queryOnce(ctx, u.message(q, size))
	}
	mixed := q
	mixed.Name = slices.Clone(q.Name)
	randomizeCase(mixed.Name)
	reply, err := u.queryOnce(ctx, u.message(mixed, size))
	if errors.Is(err, errCase) {
		u.foldsCase.set(habitTime)
		return u.queryOnce(ctx, u.message(q, size))
	}
	return reply, err
}

// message builds the query for q with a random ID. size is the size of UDP replies for
// EDNS, 0 for none.
func (u *upstream) message(q cache.Key, size uint16) []byte {
	b := make([]byte, 0, 64+len(q.Name))
	var question [dnsname.MaxWire + 4]byte
	asked := dnswire.AppendQuestion(question[:0], q.Name, q.Type)
	var flags uint16
	if q.CD {
		flags |= dnswire.FlagCD
	}
	var ednsFlags dnswire.EDNSFlags
	if q.DO {
		ednsFlags |= dnswire.FlagDO
	}
	b = dnswire.AppendQuery(b, uint16(rand.Uint32()), flags, asked, size, ednsFlags)
	switch {
	case size == 0:
	case q.Search != nil:
		b = dnswire.AppendOption(b, u.search, q.Search)
	case q.Subnet != nil:
		b = dnswire.AppendOption(b, dnswire.OptionSubnet, q.Subnet)
	}
	return b
}

// randomizeCase changes letters of a name to upper case at random.
func randomizeCase(name []byte) {
	bits := rand.Uint64()
	for i, c := range name {
		if 'a' <= c && c <= 'z' {
			if bits&1 != 0 {
				name[i] = c - ('a' - 'A')
			}
			if bits >>= 1; bits == 0 {
				bits = rand.Uint64()
			}
		}
	}
}

// errCase reports that the case of a reply's question differs from the query's
// and that the reply could not be verified over TCP.
var errCase = errors.New("the server does not preserve the case of names")

// queryOnce sends query over UDP, and over a connection if UDP does not
// suffice.
func (u *attempt) queryOnce(ctx context.Context, query []byte) (*dnswire.Reply, error) {
	if u.packets == nil {
		return u.stream.exchange(ctx, query)
	}
	packet, err := u.packets.exchange(ctx, query, u.again)
	switch {
	case errors.Is(err, errFlood):
		return u.stream.exchange(ctx, query)
	case err != nil:
		return nil, err
	}
	if _, _, exactly := packet.MatchQuery(query); !exactly {
		return u.queryOverStream(ctx, query, packet)
	}
	if packet.Flags&dnswire.FlagTC == 0 {
		return packet, nil
	}
	// A truncated reply is better than none, so it must be there before ctx is done.
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end.Add(-time.Until(end)/8))
		defer cancel()
	}
	if whole, err := u.stream.exchange(ctx, query); err == nil {
		return whole, nil
	}
	return packet, nil
}

// queryOverStream repeats the query over a connection, where replies cannot be
// forged off-path, after a packet whose question differs in case. If both
// replies match, the packet was not forged and the server does not preserve
// case.
func (u *attempt) queryOverStream(ctx context.Context, query []byte, packet *dnswire.Reply) (*dnswire.Reply, error) {
	u.counts.forged.Add(1)
	reply, err := u.stream.exchange(ctx, query)
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		return nil, errCase
	}
	if _, _, exactly := reply.MatchQuery(query); !exactly || reply.EqualRecords(packet) {
		u.foldsCase.set(habitTime)
	}
	return reply, nil
}

// Limits of the patience with an upstream, and its value before the first
// reply.
const (
	minPatience   = 10 * time.Millisecond
	firstPatience = 200 * time.Millisecond
	maxPatience   = time.Second
)

// patience returns how long u usually takes at most before another upstream is
// queried, computed as TCP's retransmission timeout (RFC 6298, section 2).
func (u *upstream) patience() time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.rtt == 0 {
		return firstPatience
	}
	return min(max(u.rtt+4*u.jitter, minPatience), maxPatience)
}

// observe records the latency of a reply, 0 if it is unknown, and marks u as up.
func (u *upstream) observe(took time.Duration) {
	u.mu.Lock()
	if took > 0 {
		u.smooth(took)
	}
	u.unanswered, u.failure, u.replied = 0, nil, time.Now()
	u.mu.Unlock()
	u.down.Store(false)
}

func (u *upstream) smooth(took time.Duration) {
	if u.rtt == 0 {
		u.rtt, u.jitter = took, took/2
		return
	}
	diff := took - u.rtt
	u.jitter += (max(diff, -diff) - u.jitter) / 4
	u.rtt += diff / 8
}

// maxUnanswered is how many consecutive attempts may be late before an upstream
// counts as down, if it has not replied for maxPatience: while it replies to some,
// the others are of names that it cannot resolve.
const maxUnanswered = 3

// late records that an attempt is late or failed, and why.
func (u *upstream) late(why error) {
	u.counts.lates.Add(1)
	u.mu.Lock()
	u.unanswered++
	if u.failure == nil || !errors.Is(why, errLate) {
		u.failure = why
	}
	down := u.unanswered >= maxUnanswered && time.Since(u.replied) >= maxPatience
	u.mu.Unlock()
	if down && !u.down.Load() {
		u.downSince.Store(time.Now().UnixNano())
		u.down.Store(true)
	}
}

// why describes why recent attempts had no reply.
func (u *upstream) why() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return inWords(cmp.Or(u.failure, errLate))
}

// smoothedRTT returns the smoothed round-trip time; 0 before the first reply.
func (u *upstream) smoothedRTT() time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.rtt
}

// errNoUpstream reports that a route has no usable upstream.
var errNoUpstream = errors.New("no upstream server is configured, or all of them are this server itself")

// errLate reports that an upstream takes longer than usual.
var errLate = errors.New("no answer")

// upstreamError names the upstream and describes the error in words, because
// clients read it in an Extended DNS Error.
type upstreamError struct {
	of  Upstream
	err error
}

func (e *upstreamError) Error() string { return e.of.String() + ": " + inWords(e.err) }

func (e *upstreamError) Unwrap() error { return e.err }

// inWords describes an error of the network, without the addresses of this host
// and the names of system calls.
func inWords(err error) string {
	var number syscall.Errno
	var certificate *tls.CertificateVerificationError
	var op *net.OpError
	var timeout net.Error
	var post *url.Error
	switch {
	case errors.Is(err, io.EOF):
		return errClosed.Error()
	case errors.As(err, &certificate):
		return "certificate verification failed: " + strings.TrimPrefix(certificate.Err.Error(), "x509: ")
	case errors.As(err, &number):
		return number.Error()
	case errors.As(err, &timeout) && timeout.Timeout():
		return "it took too long"
	case errors.As(err, &op):
		return op.Err.Error()
	case errors.As(err, &post):
		return inWords(post.Err)
	}
	return err.Error()
}

// silenceError reports that no upstream replied.
type silenceError struct {
	of    []*upstream
	after time.Duration
}

func (e *silenceError) Error() string {
	var names []string
	for _, u := range e.of {
		names = append(names, u.String())
	}
	return fmt.Sprintf("no answer from %s within %s", strings.Join(names, ", "), e.after)
}

// isNetworkError reports whether the error comes from the network, not from a
// server.
func isNetworkError(err error) bool {
	var op *net.OpError
	var errno syscall.Errno
	return errors.As(err, &errno) || errors.As(err, &op)
}
