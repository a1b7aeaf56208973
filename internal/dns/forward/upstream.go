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

// exchanger sends a query and gives the reply to it: the one with its ID and its
// question, whatever case that has.
type exchanger interface {
	exchange(ctx context.Context, query []byte) (*dnswire.Reply, error)
	close()
}

// upstream is a server that is asked, and what is known of it.
type upstream struct {
	Upstream
	packets exchanger // nil where it is always asked over a connection
	stream  exchanger
	search  dnswire.OptionCode // of the option with search paths

	down      atomic.Bool
	downSince atomic.Int64 // in nanoseconds of Unix time
	loop      loop
	foldsCase until // it does not keep the case of questions
	noEDNS    until // it does not know EDNS
	counts    upstreamCounts
	durations durations

	mu          sync.Mutex
	rtt, jitter time.Duration // smoothed; 0 when it never answered
	unanswered  int           // attempts in a row
	failure     error         // why, of the last one of which more is known than errLate
}

type upstreamCounts struct {
	queries, replies, lates, failures, forged atomic.Uint64
	// Connections made, and queries sent over one that was there.
	opened, reused atomic.Uint64
}

// until is a moment until which something holds, in nanoseconds of Unix time.
type until struct{ at atomic.Int64 }

func (u *until) holds() bool         { return time.Now().UnixNano() < u.at.Load() }
func (u *until) set(d time.Duration) { u.at.Store(time.Now().Add(d).UnixNano()) }

// habitTime is for how long it is believed that a server does not keep the case,
// or does not know EDNS.
const habitTime = time.Hour

// exchange is Config's Exchange, as an exchanger of one upstream.
type exchange func(ctx context.Context, to Upstream, query []byte) ([]byte, error)

type hooked struct {
	by exchange
	to Upstream
}

func (h hooked) exchange(ctx context.Context, query []byte) (*dnswire.Reply, error) {
	message, err := h.by(ctx, h.to, query)
	if err != nil {
		return nil, err
	}
	return dnswire.ParseReply(message)
}

func (h hooked) close() {}

func newUpstream(u Upstream, suffix dnsname.Name, by exchange, search dnswire.OptionCode) *upstream {
	made := &upstream{Upstream: u, loop: newLoop(suffix), search: search}
	if by != nil {
		made.stream = hooked{by, u}
		return made
	}
	switch u.Transport {
	case UDP:
		made.packets = &udp{made}
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

// udpSize is announced to upstreams: answers that are longer come over TCP, and
// not in fragments (DNS Flag Day 2020).
const udpSize = 1232

// ask asks u for q.
func (u *upstream) ask(ctx context.Context, q cache.Key) (*dnswire.Reply, error) {
	began := time.Now()
	u.counts.queries.Add(1)
	reply, err := u.askWithSubnet(ctx, q)
	switch {
	case err == nil:
		reply.LowercaseOwners()
		u.counts.replies.Add(1)
		took := time.Since(began)
		u.durations.observe(reply.RCode, took)
		if reply.RCode != dnswire.NoError && reply.RCode != dnswire.NXDomain {
			took = max(took, firstPatience) // who fails fast is not fast
		}
		u.observe(took)
	case ctx.Err() == nil:
		u.counts.failures.Add(1)
		if !isOurs(err) {
			u.late(err)
		}
		err = &upstreamError{u.Upstream, err}
	}
	return reply, err
}

// askWithSubnet asks for q, and once more without its subnet where u refuses the
// option, or says that its reply is for another subnet: such a reply is dropped,
// and says nothing of whether u is up. What comes without has no Subnet.
func (u *upstream) askWithSubnet(ctx context.Context, q cache.Key) (*dnswire.Reply, error) {
	reply, err := u.askAsItLikes(ctx, q)
	switch {
	case err != nil:
		return nil, err
	case q.Subnet != nil && (isBewildered(reply) || reply.RCode == dnswire.Refused):
	case isForSubnet(q, reply):
		return reply, nil
	default:
		u.counts.forged.Add(1)
	}
	q.Subnet = nil
	return u.askWithSubnet(ctx, q)
}

// isForSubnet tells whether a reply is for the subnet of q, and sets the reply's
// Subnet to what it says of that. One without the option has SCOPE 0 (RFC 7871,
// section 7.3): it is for the clients of all subnets. One to a question without
// a prefix is for those who gave none, whatever it says.
func isForSubnet(q cache.Key, reply *dnswire.Reply) bool {
	if q.Subnet == nil || !q.Subnet.HasPrefix() || reply.Subnet == nil {
		reply.Subnet = q.Subnet
		return true
	}
	return reply.Subnet.Matches(q.Subnet)
}

// isOurs tells whether an error says nothing of the upstream: it is a limit of
// this host.
func isOurs(err error) bool {
	for _, limit := range []error{errTooMany, syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.EADDRNOTAVAIL} {
		if errors.Is(err, limit) {
			return true
		}
	}
	return false
}

// askAsItLikes asks without EDNS where u does not know it, which it may tell
// meanwhile. With a subnet it does not: that may be all that u does not take. What
// is to be searched for is another question without.
func (u *upstream) askAsItLikes(ctx context.Context, q cache.Key) (*dnswire.Reply, error) {
	edns := !u.noEDNS.holds() || q.Search != nil
	reply, err := u.askInCase(ctx, q, edns)
	if err == nil && q.Search != nil {
		u.wantSearched(reply)
	}
	if err != nil || !edns || q.Subnet != nil || q.Search != nil || reply.EDNS || !isBewildered(reply) {
		return reply, err
	}
	// RFC 6891, section 7: it may not know EDNS; then it does better without.
	again, err := u.askInCase(ctx, q, false)
	if err != nil {
		return reply, nil
	}
	if !isBewildered(again) {
		u.noEDNS.set(habitTime)
	}
	return again, nil
}

// wantSearched makes a reply a refusal that does not say, by the option, that its
// server has searched: one that does not know the option answers for the name
// alone.
func (u *upstream) wantSearched(reply *dnswire.Reply) {
	if (reply.RCode == dnswire.NoError || reply.RCode == dnswire.NXDomain) && !slices.Contains(reply.Options, u.search) {
		reply.RCode = dnswire.Refused
		reply.EDE = &dnswire.ReplyEDE{Code: dnswire.EDEOther, Text: fmt.Sprintf("it does not search for names by option %d (autopath.option, autopath.clients)", u.search)}
	}
}

func isBewildered(reply *dnswire.Reply) bool {
	return reply.RCode == dnswire.FormErr || reply.RCode == dnswire.NotImp
}

// askInCase asks in upper and lower case where u keeps that.
func (u *upstream) askInCase(ctx context.Context, q cache.Key, edns bool) (*dnswire.Reply, error) {
	folds := u.foldsCase.holds()
	reply, err := u.askOnce(ctx, u.query(q, edns, folds))
	if errors.Is(err, errCase) && !folds {
		u.foldsCase.set(habitTime)
		return u.askOnce(ctx, u.query(q, edns, true))
	}
	return reply, err
}

// query makes the query for q, with an ID of its own and, where u keeps it, its
// letters in upper and lower case by chance: the more is random, the harder it
// is to forge (RFC 5452, section 4).
func (u *upstream) query(q cache.Key, edns, plain bool) []byte {
	b := make([]byte, 0, 64+len(q.Name))
	var question [dnsname.MaxWire + 4]byte
	asked := dnswire.AppendQuestion(question[:0], q.Name, q.Type)
	if !plain && u.packets != nil {
		scatterCase(asked[:len(q.Name)])
	}
	var flags uint16
	if q.CD {
		flags |= dnswire.FlagCD
	}
	var ednsFlags dnswire.EDNSFlags
	if q.DO {
		ednsFlags |= dnswire.FlagDO
	}
	size := uint16(0)
	if edns {
		size = udpSize
	}
	b = dnswire.AppendQuery(b, uint16(rand.Uint32()), flags, asked, size, ednsFlags)
	switch {
	case !edns:
	case q.Search != nil:
		b = dnswire.AppendOption(b, u.search, q.Search)
	case q.Subnet != nil:
		b = dnswire.AppendOption(b, dnswire.OptionSubnet, q.Subnet)
	}
	return b
}

// scatterCase makes some of the letters of a name upper case.
func scatterCase(name []byte) {
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

// errCase says that the reply's question has another case than the query's, and
// that there is no connection to ask over.
var errCase = errors.New("the server does not keep the case of names")

// askOnce sends query, over a connection where packets do not do.
func (u *upstream) askOnce(ctx context.Context, query []byte) (*dnswire.Reply, error) {
	if u.packets == nil {
		return u.stream.exchange(ctx, query)
	}
	packet, err := u.packets.exchange(ctx, query)
	switch {
	case errors.Is(err, errFlood):
		return u.stream.exchange(ctx, query)
	case err != nil:
		return nil, err
	}
	if _, _, exactly := packet.MatchQuery(query); !exactly {
		return u.askSafely(ctx, query, packet)
	}
	if packet.Flags&dnswire.FlagTC == 0 {
		return packet, nil
	}
	if whole, err := u.stream.exchange(ctx, query); err == nil {
		return whole, nil
	}
	return packet, nil // better than nothing
}

// askSafely asks over a connection, whose replies nobody can forge, after a packet
// that may be: its question has another case. Where it is not forged, the server
// does not keep the case.
func (u *upstream) askSafely(ctx context.Context, query []byte, packet *dnswire.Reply) (*dnswire.Reply, error) {
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

// Bounds of how long an upstream may take before another is asked as well, and
// what it is of one that nobody knows yet.
const (
	minPatience   = 10 * time.Millisecond
	firstPatience = 200 * time.Millisecond
	maxPatience   = time.Second
)

// patience is how long u usually takes at most, as TCP reckons it (RFC 6298,
// section 2).
func (u *upstream) patience() time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.rtt == 0 {
		return firstPatience
	}
	return min(max(u.rtt+4*u.jitter, minPatience), maxPatience)
}

// observe notes how long an answer took.
func (u *upstream) observe(took time.Duration) {
	u.mu.Lock()
	u.smooth(took)
	u.unanswered, u.failure = 0, nil
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

// maxUnanswered is how many attempts in a row may be late until u is held to be
// down.
const maxUnanswered = 3

// late notes that an attempt takes longer than it should, or failed, and why.
func (u *upstream) late(why error) {
	u.counts.lates.Add(1)
	u.mu.Lock()
	u.unanswered++
	if u.failure == nil || why != errLate {
		u.failure = why
	}
	down := u.unanswered >= maxUnanswered
	u.mu.Unlock()
	if down && !u.down.Load() {
		u.downSince.Store(time.Now().UnixNano())
		u.down.Store(true)
	}
}

// why says why attempts of late had no answer.
func (u *upstream) why() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return inWords(cmp.Or(u.failure, errLate))
}

// smoothedRTT is how long u takes about; 0 when nobody knows.
func (u *upstream) smoothedRTT() time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.rtt
}

// errNoUpstream says that a route leads nowhere.
var errNoUpstream = errors.New("no upstream server is configured, or all of them are this server itself")

// errLate says that an upstream takes longer than it usually does.
var errLate = errors.New("no answer")

// upstreamError says which upstream could not be asked, and why, in words: clients
// read it.
type upstreamError struct {
	of  Upstream
	err error
}

func (e *upstreamError) Error() string { return e.of.String() + ": " + inWords(e.err) }

func (e *upstreamError) Unwrap() error { return e.err }

// inWords says what an error of the network is, without the addresses of this host
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
		return "its certificate is not accepted: " + strings.TrimPrefix(certificate.Err.Error(), "x509: ")
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

// silenceError says that nobody answered.
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

// isNetworkError tells whether the network, and not a server, said no.
func isNetworkError(err error) bool {
	var op *net.OpError
	var errno syscall.Errno
	return errors.As(err, &errno) || errors.As(err, &op)
}
