package secondary

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/forward"
	"portolan.dev/portolan/internal/dns/kubezone"
	"portolan.dev/portolan/internal/dns/zone"
)

var (
	clusterZone = dnsname.MustParse("cluster.local")
	reverseZone = dnsname.MustParse("10.in-addr.arpa")
	testZones   = []dnsname.Name{clusterZone, reverseZone}
)

// primary is the data of a primary: a cluster, compiled into zones.
type primary struct {
	t        testing.TB
	compiler *kubezone.Compiler
	store    *cluster.Store
	feed     *cluster.Feed

	mu sync.Mutex
	db *zone.DB
	// mname identifies its history.
	mname dnsname.Name
}

func newPrimary(tb testing.TB, mname string) *primary {
	tb.Helper()
	c, err := kubezone.New(kubezone.Config{
		Zones: []dnsname.Name{clusterZone}, TTL: 5, Pods: kubezone.PodsVerified, Serial: 100,
		Instance:      dnsname.MustParse(mname).Label(),
		ReverseRanges: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
	})
	if err != nil {
		tb.Fatal(err)
	}
	p := &primary{t: tb, compiler: c, store: cluster.NewStore(), mname: dnsname.MustParse(mname)}
	if p.db, err = c.NewDB(); err != nil {
		tb.Fatal(err)
	}
	p.feed = p.store.Subscribe()
	tb.Cleanup(p.feed.Close)
	p.db.SetHistoryLimits(zone.HistoryLimits{Changes: 1 << 20, Octets: 1 << 30})
	p.update(func(tx *cluster.Tx) {
		tx.Put(&cluster.Namespace{Name: "shop"})
		tx.SetFreshness(cluster.Live, cluster.Kinds()...)
	})
	return p
}

func (p *primary) update(change func(*cluster.Tx)) {
	p.store.Update(change)
	p.compiler.Apply(p.store, p.feed, p.db)
}

// service sets a Service with that many endpoints; none deletes it.
func (p *primary) service(name string, endpoints int) {
	p.update(func(tx *cluster.Tx) { putService(tx, name, endpoints, 0) })
}

func putService(tx *cluster.Tx, name string, endpoints, salt int) {
	key := cluster.Key{Namespace: "shop", Name: name}
	if endpoints == 0 {
		tx.Delete(cluster.KindService, key)
		tx.Delete(cluster.KindEndpointSlice, key)
		return
	}
	h := 0
	for _, c := range name {
		h = h*31 + int(c)
	}
	addr := func(i int) netip.Addr {
		n := h*8 + i + salt*1_000_003
		return netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
	}
	ports := []cluster.Port{{Name: "http", Protocol: cluster.TCP, Number: 80}}
	tx.Put(&cluster.Service{Key: key, ClusterIPs: []netip.Addr{addr(0)}, Ports: ports})
	s := &cluster.EndpointSlice{Key: key, Service: name, AddressType: cluster.IPv4, Ports: ports}
	for i := range endpoints {
		s.Endpoints = append(s.Endpoints, cluster.Endpoint{Addr: addr(i + 1), Ready: true})
	}
	tx.Put(s)
}

func (p *primary) soa(soa dnswire.SOA) dnswire.SOA {
	p.mu.Lock()
	defer p.mu.Unlock()
	soa.MName = p.mname
	return soa
}

// server transfers the zones of a primary, over TCP or TLS.
type server struct {
	*primary
	listener net.Listener
	key      *dnswire.TSIGKey
	// spoil replaces each message of a reply, by number; nil closes the
	// connection.
	spoil atomic.Pointer[func(i int, message []byte) []byte]
	// clock is the error of its clock.
	clock time.Duration
	// per is the number of records per message.
	per    int
	detail zone.Detail

	conns, axfr, ixfr atomic.Int32
	mu2               sync.Mutex
	open              map[net.Conn]bool
}

func newServer(tb testing.TB, p *primary, config *tls.Config) *server {
	tb.Helper()
	var l net.Listener
	var err error
	if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		tb.Fatal(err)
	}
	if config != nil {
		l = tls.NewListener(l, config)
	}
	s := &server{primary: p, listener: l, per: 7, detail: zone.WithMetadata, open: make(map[net.Conn]bool)}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.conns.Add(1)
			s.mu2.Lock()
			s.open[c] = true
			s.mu2.Unlock()
			serving.Go(func() {
				s.serve(c)
				s.mu2.Lock()
				delete(s.open, c)
				s.mu2.Unlock()
			})
		}
	})
	tb.Cleanup(func() {
		s.stop()
		serving.Wait()
	})
	return s
}

// stop stops the server and closes its connections.
func (s *server) stop() {
	s.listener.Close()
	s.hangUp()
}

// hangUp closes its connections.
func (s *server) hangUp() {
	s.mu2.Lock()
	defer s.mu2.Unlock()
	for c := range s.open {
		c.Close()
	}
}

func (s *server) addr() netip.AddrPort { return s.listener.Addr().(*net.TCPAddr).AddrPort() }

func (s *server) upstream() forward.Upstream {
	return forward.Upstream{Addr: s.addr(), Transport: forward.TCP}
}

func (s *server) serve(c net.Conn) {
	defer c.Close()
	for {
		var length [2]byte
		if _, err := io.ReadFull(c, length[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(length[:]))
		if _, err := io.ReadFull(c, query); err != nil {
			return
		}
		for i, m := range s.answer(query) {
			if spoil := s.spoil.Load(); spoil != nil {
				if m = (*spoil)(i, m); m == nil {
					return
				}
			}
			if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(m))), m...)); err != nil {
				return
			}
		}
	}
}

// answer returns the messages of a reply.
func (s *server) answer(query []byte) [][]byte {
	var q dns.Msg
	if err := q.Unpack(query); err != nil {
		s.t.Errorf("query: %v", err)
		return nil
	}
	var signed *dnswire.TSIGExchange
	if s.key != nil {
		signed = s.key.NewExchange()
		if err := signed.Verify(query, time.Now().Add(s.clock)); err != nil {
			return [][]byte{s.refuse(&q, query, err)}
		}
	}
	messages := s.messages(&q)
	if signed != nil {
		for i := range messages {
			messages[i] = signed.Sign(messages[i], time.Now().Add(s.clock))
		}
	}
	return messages
}

const notAuth = 9

func (s *server) refuse(q *dns.Msg, query []byte, err error) []byte {
	m := new(dns.Msg)
	m.SetRcode(&dns.Msg{MsgHdr: q.MsgHdr, Question: q.Question}, notAuth)
	wire, _ := m.Pack()
	t, _ := dnswire.ReadTSIG(query)
	if t == nil {
		return wire
	}
	why, ok := errors.AsType[dnswire.TSIGError](err)
	if !ok {
		return wire
	}
	if why == dnswire.ErrBadTime {
		x := s.key.NewExchange()
		_ = x.Verify(query, time.Now().Add(s.clock))
		return x.SignBadTime(wire, t, time.Now().Add(s.clock))
	}
	return dnswire.AppendTSIGError(wire, t, why)
}

func (s *server) messages(q *dns.Msg) [][]byte {
	if opt := q.IsEdns0(); opt == nil || len(opt.Option) != 1 || opt.Option[0].Option() != uint16(dnswire.OptionMetadata) {
		s.t.Errorf("the query does not request metadata: %v", q)
	}
	name := dnsname.MustParse(q.Question[0].Name)
	var records [][]byte
	add := func(o zone.OwnedRRset) {
		for _, rdata := range o.Set.RData() {
			records = append(records, wireRecord(o.Owner, o.Set.Type, o.Set.TTL(), rdata))
		}
	}
	addSOA := func(soa dnswire.SOA) {
		records = append(records, wireRecord([]byte(name.WireLabels()), dnswire.TypeSOA, soa.TTL, soa.AppendRData(nil)))
	}
	if q.Question[0].Qtype == dns.TypeIXFR {
		has := q.Ns[0].(*dns.SOA)
		d, err := s.db.Since(name, has.Serial)
		if err == nil && dnsname.MustParse(has.Ns) == s.soa(dnswire.SOA{}).MName {
			s.ixfr.Add(1)
			addSOA(s.soa(d.To))
			gone, come := d.Records(s.detail)
			if d.From.Serial != d.To.Serial {
				addSOA(s.soa(d.From))
				for _, o := range gone {
					add(o)
				}
				addSOA(s.soa(d.To))
				for _, o := range come {
					add(o)
				}
				addSOA(s.soa(d.To))
			}
			return s.pack(q, records)
		}
	}
	s.axfr.Add(1)
	m, err := s.db.Version(name)
	if err != nil {
		s.t.Error(err)
		return nil
	}
	addSOA(s.soa(m.SOA))
	for o := range m.Records(s.detail) {
		add(o)
	}
	addSOA(s.soa(m.SOA))
	return s.pack(q, records)
}

func wireRecord(owner []byte, t dnswire.Type, ttl uint32, rdata []byte) []byte {
	b := append(bytes.Clone(owner), 0)
	b = binary.BigEndian.AppendUint16(b, uint16(t))
	b = binary.BigEndian.AppendUint16(b, uint16(dnswire.ClassIN))
	b = binary.BigEndian.AppendUint32(b, ttl)
	b = binary.BigEndian.AppendUint16(b, uint16(len(rdata)))
	return append(b, rdata...)
}

// pack packs records into messages, with the question in the first.
func (s *server) pack(q *dns.Msg, records [][]byte) (messages [][]byte) {
	for first := true; len(records) > 0; first = false {
		m := new(dns.Msg)
		m.SetReply(&dns.Msg{MsgHdr: q.MsgHdr, Question: q.Question})
		if !first {
			m.Question = nil
		}
		wire, _ := m.Pack()
		n := min(s.per, len(records))
		if first && len(records) > 1 {
			n = max(n, 2) // a first message with the SOA alone would mean no change
		}
		binary.BigEndian.PutUint16(wire[6:], uint16(n))
		for _, r := range records[:n] {
			wire = append(wire, r...)
		}
		messages, records = append(messages, wire), records[n:]
	}
	return messages
}

func testConfig(servers ...*server) Config {
	cfg := Config{Zones: testZones, CheckInterval: 20 * time.Millisecond, Node: "node-1"}
	for _, s := range servers {
		cfg.Servers = append(cfg.Servers, s.upstream())
	}
	return cfg
}

// lockedBuffer is a buffer that is safe for concurrent use.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

type running struct {
	*Secondary
	t      testing.TB
	log    *lockedBuffer
	cancel context.CancelFunc
	done   chan struct{}
}

// run runs a Secondary until the test ends, or stop.
func run(tb testing.TB, cfg Config) *running {
	tb.Helper()
	r := &running{t: tb, log: new(lockedBuffer), done: make(chan struct{})}
	cfg.Log = slog.New(slog.NewTextHandler(r.log, nil))
	var err error
	if r.Secondary, err = New(cfg); err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(tb.Context())
	r.cancel = cancel
	go func() {
		defer close(r.done)
		_ = r.Run(ctx)
	}()
	tb.Cleanup(r.stop)
	return r
}

func (r *running) stop() {
	r.cancel()
	<-r.done
}

// patience is how long a step may take on a loaded machine.
const patience = 20 * time.Second

// wait waits for ok.
func (r *running) wait(what string, ok func() bool) {
	r.t.Helper()
	end, tick := time.After(patience), time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-end:
			r.t.Fatalf("%s: not within %v; status %+v, log:\n%s", what, patience, r.Status(), r.log)
		}
	}
}

// current reports whether the copies equal the data of p.
func (r *running) current(p *primary) bool {
	for _, z := range r.Status().Zones {
		for _, soa := range p.db.SOAs() {
			if soa.Zone == z.Zone && (!z.Loaded || z.Stale || z.Serial != soa.Serial || z.MName != p.soa(soa).MName) {
				return false
			}
		}
	}
	return true
}

func (r *running) waitCurrent(p *primary) {
	r.t.Helper()
	r.wait("current", func() bool { return r.current(p) })
}

// contents returns all visible data of the zones, one record per line.
func contents(p *primary, db *zone.DB) []string {
	var lines []string
	for _, e := range db.Entries() {
		if e.Zone != clusterZone && e.Zone != reverseZone {
			continue
		}
		if e.SOA != nil {
			soa := p.soa(*e.SOA)
			e.SOA = &soa
		}
		lines = append(lines, fmt.Sprintf("%s exists=%v children=%d %d %+v", e.Name, e.Exists, e.Metadata.Children, e.Metadata.ChildTTL, e.SOA))
		for i, n := range []*zone.EDE{e.Metadata.EDE, e.Metadata.Below, e.Metadata.Underscored} {
			if n != nil {
				lines = append(lines, fmt.Sprintf("%s note %d: %+v", e.Name, i, *n))
			}
		}
		for _, set := range e.Sets {
			records, err := set.Records(e.Name)
			if err != nil {
				lines = append(lines, err.Error())
			}
			for _, rec := range records {
				lines = append(lines, rec.String())
			}
		}
	}
	return lines
}

func lookup(db *zone.DB, name string, t dnswire.Type) zone.Answer {
	return db.Lookup(new(zone.Scratch), []byte(dnsname.MustParse(name).WireLabels()), t)
}
