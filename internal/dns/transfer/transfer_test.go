package transfer

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/dns/zone"
)

var apex = dnsname.MustParse("cluster.local")

func soa(name string) dnswire.SOA {
	return dnswire.SOA{Zone: dnsname.MustParse(name), MName: dnsname.MustParse("i1.ns.dns.cluster.local"), RName: apex, TTL: 5, Serial: 100, Minimum: 5}
}

// newDB returns zones that remember changes.
func newDB(tb testing.TB) *zone.DB {
	tb.Helper()
	db, err := zone.New(soa("cluster.local"), soa("10.in-addr.arpa"), soa("in-addr.arpa"), soa("waiting.example"))
	if err != nil {
		tb.Fatal(err)
	}
	db.SetHistoryLimits(zone.HistoryLimits{Changes: 1000, Octets: 1 << 20})
	put(db, "waiting.example", func(b *zone.Builder) { b.Metadata.Below = &zone.EDE{Pending: true} })
	return db
}

func put(db *zone.DB, base string, fill func(*zone.Builder)) {
	name := dnsname.MustParse(base)
	var b zone.Builder
	b.Begin(name, 5)
	fill(&b)
	db.Apply(zone.Changes{Subtrees: []zone.Change{{Base: name, Subtree: b.Subtree()}}})
}

// grow adds an address.
func grow(db *zone.DB, i int) {
	put(db, fmt.Sprintf("n%d.cluster.local", i), func(b *zone.Builder) {
		b.AddAddr(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}))
	})
}

func newSender(tb testing.TB, db *zone.DB, change func(*Config)) *Sender {
	tb.Helper()
	cfg := Config{Data: db, Permissions: []Permission{{Clients: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}}, MaxTransfers: 10, MaxSize: 1 << 30, UDPSize: 1232}
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// query returns an AXFR query over TCP.
func query(name string) *respond.TransferQuery {
	z := dnsname.MustParse(name)
	question := append(z.AppendWire(nil), 0, 252, 0, 1)
	return &respond.TransferQuery{
		Client: respond.Client{Addr: netip.MustParseAddr("192.0.2.1"), Transport: respond.TCP},
		Zone:   z, Type: dnswire.TypeAXFR, Repeats: dnswire.TransferQuery{ID: 7, Question: question},
	}
}

// since returns an IXFR query.
func since(name string, serial uint32) *respond.TransferQuery {
	q := query(name)
	q.Type, q.Held = dnswire.TypeIXFR, &dnswire.IXFRBase{Serial: serial, MName: soa(name).MName}
	return q
}

// taken returns the records of a reply as text.
func taken(tb testing.TB, m respond.Messages) (records []string) {
	tb.Helper()
	for wire := range m(tb.Context()) {
		var m dns.Msg
		if err := m.Unpack(wire); err != nil {
			tb.Fatal(err)
		}
		for _, rr := range m.Answer {
			records = append(records, strings.ReplaceAll(rr.String(), "\t", " "))
		}
	}
	return records
}

const soaAt = "cluster.local. 5 IN SOA i1.ns.dns.cluster.local. cluster.local. %d 0 0 0 5"

// TestRefused checks code and text of each reason for refusal.
func TestRefused(t *testing.T) {
	db := newDB(t)
	s := newSender(t, db, nil)
	for name, c := range map[string]struct {
		change func(*respond.TransferQuery)
		rcode  dnswire.RCode
		ede    dnswire.EDECode
	}{
		"another client":      {func(q *respond.TransferQuery) { q.Client.Addr = netip.MustParseAddr("198.51.100.1") }, dnswire.Refused, dnswire.EDEProhibited},
		"over UDP":            {func(q *respond.TransferQuery) { q.Client.Transport = respond.UDP }, dnswire.Refused, dnswire.EDEProhibited},
		"over HTTPS":          {func(q *respond.TransferQuery) { q.Client.Transport = respond.HTTPS }, dnswire.Refused, dnswire.EDEProhibited},
		"all reverse names":   {func(q *respond.TransferQuery) { q.Zone = dnsname.ReverseIPv4 }, dnswire.Refused, dnswire.EDEProhibited},
		"no zone":             {func(q *respond.TransferQuery) { q.Zone = dnsname.MustParse("n1.cluster.local") }, dnswire.NotAuth, dnswire.EDENotAuthoritative},
		"a zone not loaded":   {func(q *respond.TransferQuery) { q.Zone = dnsname.MustParse("waiting.example") }, dnswire.ServFail, dnswire.EDENotReady},
		"what changed in one": {func(q *respond.TransferQuery) { *q = *since("waiting.example", 100) }, dnswire.ServFail, dnswire.EDENotReady},
		"nothing new of one":  {func(q *respond.TransferQuery) { *q = *since("waiting.example", 101) }, dnswire.ServFail, dnswire.EDENotReady},
	} {
		q := query("cluster.local")
		c.change(q)
		messages, refusal := s.Begin(q)
		if messages != nil || refusal == nil || refusal.RCode != c.rcode || refusal.Note.Code != c.ede {
			t.Errorf("%s: Begin = %v, want %s and EDE %d", name, refusal, c.rcode, c.ede)
		}
	}
	if messages, refusal := s.Begin(query("10.in-addr.arpa")); messages == nil || refusal != nil {
		t.Errorf("a reverse zone of a range: %v", refusal)
	}
}

// TestPermissions checks that a client must meet all conditions of one
// permission.
func TestPermissions(t *testing.T) {
	key := dnsname.MustParse("replica")
	rule := Permission{Clients: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, Key: key}
	for name, c := range map[string]struct {
		rule   Permission
		change func(*respond.TransferQuery)
		want   bool
	}{
		"both":            {rule, func(q *respond.TransferQuery) { q.Key = key }, true},
		"no key":          {rule, func(*respond.TransferQuery) {}, false},
		"another key":     {rule, func(q *respond.TransferQuery) { q.Key = dnsname.MustParse("other") }, false},
		"another address": {rule, func(q *respond.TransferQuery) { q.Key, q.Client.Addr = key, netip.MustParseAddr("::1") }, false},
		"an IPv4 in IPv6": {rule, func(q *respond.TransferQuery) { q.Key, q.Client.Addr = key, netip.MustParseAddr("::ffff:192.0.2.9") }, true},
		"any address":     {Permission{Key: key}, func(q *respond.TransferQuery) { q.Key, q.Client.Addr = key, netip.MustParseAddr("::1") }, true},
		"a certificate":   {Permission{Certificate: "a.example"}, func(*respond.TransferQuery) {}, false},
	} {
		q := query("cluster.local")
		c.change(q)
		if got := c.rule.permits(q); got != c.want {
			t.Errorf("%s: holds = %v, want %v", name, got, c.want)
		}
	}
}

// TestAXFR checks the order SOA, records, SOA (RFC 5936, section 2.2).
func TestAXFR(t *testing.T) {
	db := newDB(t)
	s := newSender(t, db, nil)
	grow(db, 1)
	messages, refusal := s.Begin(query("cluster.local"))
	if refusal != nil {
		t.Fatal(refusal)
	}
	want := []string{fmt.Sprintf(soaAt, 101), "n1.cluster.local. 5 IN A 10.0.0.1", fmt.Sprintf(soaAt, 101)}
	if got := taken(t, messages); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("AXFR = %q, want %q", got, want)
	}
}

// TestManyTargets checks that transfers hold all targets of an address in their
// order, whatever their number.
func TestManyTargets(t *testing.T) {
	db := newDB(t)
	addr := netip.MustParseAddr("10.0.0.1")
	const targets = 1000
	put(db, "z.cluster.local", func(b *zone.Builder) {
		for i := range targets {
			b.AddPTR(addr, zone.Tier(0, zone.First), fmt.Sprintf("%063d", i))
		}
	})
	put(db, "a.cluster.local", func(b *zone.Builder) { b.AddPTR(addr, zone.Tier(0, zone.Last)) })
	s := newSender(t, db, nil)
	for _, q := range []*respond.TransferQuery{query("10.in-addr.arpa"), since("10.in-addr.arpa", 100)} {
		q.Detail = zone.WithMetadata
		messages, refusal := s.Begin(q)
		if refusal != nil {
			t.Fatal(refusal)
		}
		pointers := 0
		for _, record := range taken(t, messages) {
			if strings.Contains(record, " PTR ") {
				pointers++
			}
		}
		if pointers != targets+1 {
			t.Errorf("%s holds %d PTR records, want %d", q.Type, pointers, targets+1)
		}
	}
}

// TestIXFR checks differences, unchanged zones, and whole zones when the
// changes are unknown or of another primary (RFC 1995, sections 2 to 4).
func TestIXFR(t *testing.T) {
	db := newDB(t)
	s := newSender(t, db, nil)
	grow(db, 1)
	grow(db, 2)
	put(db, "n1.cluster.local", func(*zone.Builder) {})
	now := fmt.Sprintf(soaAt, 103)
	whole := []string{now, "n2.cluster.local. 5 IN A 10.0.0.2", now}
	other := since("cluster.local", 102)
	other.Held.MName = dnsname.MustParse("i2.ns.dns.cluster.local")
	same := since("cluster.local", 103)
	same.Held.MName = other.Held.MName
	marked := since("cluster.local", 102)
	marked.Detail = zone.WithMetadata
	udp := since("cluster.local", 101)
	udp.Client.Transport = respond.UDP
	for name, c := range map[string]struct {
		query *respond.TransferQuery
		want  []string // none means the SOA alone
	}{
		"all":                    {since("cluster.local", 100), []string{now, fmt.Sprintf(soaAt, 100), now, "n2.cluster.local. 5 IN A 10.0.0.2", now}},
		"the last":               {since("cluster.local", 102), []string{now, fmt.Sprintf(soaAt, 102), "n1.cluster.local. 5 IN A 10.0.0.1", now, now}},
		"with metadata":          {marked, []string{now, fmt.Sprintf(soaAt, 102), "n1.cluster.local. 5 IN A 10.0.0.1", `n1.cluster.local. 0 CLASS1 TYPE65280 \# 6 010000000000`, now, now}},
		"nothing":                {since("cluster.local", 103), nil},
		"over UDP":               {udp, nil},
		"before the history":     {since("cluster.local", 99), whole},
		"a serial to come":       {since("cluster.local", 104), whole},
		"of another history":     {other, whole},
		"and by chance the same": {same, whole},
	} {
		messages, refusal := s.Begin(c.query)
		if refusal != nil {
			t.Fatalf("%s: %v", name, refusal)
		}
		var got []string
		if messages != nil {
			got = taken(t, messages)
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: IXFR = %q, want %q", name, got, c.want)
		}
	}
	figures := fmt.Sprint()
	s.Counters().Transfers(func(k Kind, r SendResult, n uint64) {
		if n > 0 {
			figures += fmt.Sprintf("%s %s %d, ", k, r, n)
		}
	})
	if want := "ixfr done 3, ixfr up_to_date 1, axfr_instead done 4, "; figures != want {
		t.Errorf("counted %s, want %s", figures, want)
	}
}

// TestConcurrentTransfersShareMessages checks that concurrent equal transfers share messages while the
// zone changes, and that those of old versions are dropped.
func TestConcurrentTransfersShareMessages(t *testing.T) {
	db := newDB(t)
	s := newSender(t, db, nil)
	var clients sync.WaitGroup
	for i := range 50 {
		grow(db, i)
		for _, q := range []*respond.TransferQuery{query("cluster.local"), since("cluster.local", uint32(100+i))} {
			clients.Go(func() {
				messages, refusal := s.Begin(q)
				if refusal != nil || messages == nil {
					return // no change
				}
				if got := taken(t, messages); len(got) < 2 || got[0] != got[len(got)-1] {
					t.Errorf("a transfer that is not whole: %q", got)
				}
			})
		}
	}
	clients.Wait()
	one, _ := s.Begin(query("cluster.local"))
	two, _ := s.Begin(query("cluster.local"))
	taken(t, one)
	for key := range s.images.all {
		if now := db.SOAs()[0].Serial; key.to != now {
			t.Errorf("an image to serial %d is kept, the zone has %d", key.to, now)
		}
	}
	taken(t, two)
	octets := int64(0)
	for _, i := range s.images.all {
		octets += i.octets
		if i.users != 0 {
			t.Errorf("an image has %d users", i.users)
		}
	}
	if octets != s.images.octets {
		t.Errorf("images of %d octets are counted as %d", octets, s.images.octets)
	}
}

// TestMemoryIsReserved checks that memory is reserved when an image is begun, and that
// a single image may exceed the limit.
func TestMemoryIsReserved(t *testing.T) {
	db := newDB(t)
	s := newSender(t, db, func(c *Config) { c.MaxSize = 1 })
	for i := range 50 {
		grow(db, i)
	}
	for range 2 {
		var begun []respond.Messages
		for i := range uint32(50) {
			messages, refusal := s.Begin(since("cluster.local", 100+i))
			if messages != nil {
				begun = append(begun, messages)
			} else if refusal.Note != &busy {
				t.Fatalf("Begin = %v", refusal)
			}
		}
		if len(begun) != 1 {
			t.Errorf("%d images are begun, want 1", len(begun))
		}
		f := &s.Counters().transfers
		if got := f[KindIXFR][ResultBusy].Swap(0) + f[KindFullIXFR][ResultBusy].Swap(0); got != 49 {
			t.Errorf("%d transfers counted as busy, want 49", got)
		}
		for _, messages := range begun {
			taken(t, messages)
		}
	}
}

// TestMemoryEstimates compares the reserved memory with the size of images.
func TestMemoryEstimates(t *testing.T) {
	db := newDB(t)
	put(db, "many.cluster.local", func(b *zone.Builder) {
		for i := range 1000 {
			addr := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
			b.AddHost(addr)
			b.AddAddr(addr)
			b.AddHostPTR(addr, zone.Tier(0, zone.First))
		}
	})
	for i := range 1000 {
		grow(db, i)
	}
	s := newSender(t, db, nil)
	for _, q := range []*respond.TransferQuery{query("cluster.local"), query("10.in-addr.arpa"), since("cluster.local", 100), since("10.in-addr.arpa", 100)} {
		kind := kindOf(q)
		i, err := s.imageFor(q, &kind)
		if err != nil {
			t.Fatal(err)
		}
		reserved := i.octets
		s.images.messagesOf(i)
		if reserved < i.octets/2 || reserved > 4*i.octets {
			t.Errorf("%s of %s: %d octets are reserved, and %d taken", q.Type, q.Zone, reserved, i.octets)
		}
		s.images.release(i)
	}
}

// TestMessagesAreBuiltAfterASlotIsFree checks that messages of a whole zone are built only when the
// transfer has a slot.
func TestMessagesAreBuiltAfterASlotIsFree(t *testing.T) {
	db := newDB(t)
	grow(db, 1)
	s := newSender(t, db, func(c *Config) { c.MaxTransfers = 1 })
	s.slots <- struct{}{}
	messages, _ := s.Begin(query("cluster.local"))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range messages(ended) {
	}
	for _, i := range s.images.all {
		if i.messages != nil {
			t.Errorf("messages were made")
		}
	}
	if got := s.Counters().transfers[KindAXFR][ResultBusy].Load(); got != 1 {
		t.Errorf("%d transfers counted as busy, want 1", got)
	}
}

// TestAborted checks that a transfer ends when the client or the server stops.
func TestAborted(t *testing.T) {
	db := newDB(t)
	for i := range 2000 {
		grow(db, i)
	}
	s := newSender(t, db, func(c *Config) { c.MaxTransfers = 1 })
	for range 3 { // a slot that is not released would block
		messages, _ := s.Begin(query("cluster.local"))
		for range messages(t.Context()) {
			break
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	defer cancel()
	messages, _ := s.Begin(query("cluster.local"))
	n := 0
	for range messages(ended) {
		n++
		cancel()
	}
	if n != 1 {
		t.Errorf("%d messages behind the end", n-1)
	}
	if got := s.Counters().transfers[KindAXFR][ResultAborted].Load(); got != 4 {
		t.Errorf("%d transfers aborted, want 4", got)
	}
}

// TestAnswersAfterAnError checks that replies to NOTIFYs are read until the
// socket is closed, despite errors.
func TestAnswersAfterAnError(t *testing.T) {
	ours, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	s := newSender(t, newDB(t), nil)
	n := &notifier{Sender: s, conn: ours, notices: make(map[noticeKey]*notice)}
	secondary := ours.LocalAddr().(*net.UDPAddr).AddrPort() // itself
	now := soa("cluster.local")
	message := dnswire.NewNotify(7, &now)
	n.notices[noticeKey{secondary, apex}] = &notice{due: time.Now(), tries: 1, message: message}
	var m dns.Msg
	if err := m.Unpack(message); err != nil {
		t.Fatal(err)
	}
	reply, err := new(dns.Msg).SetReply(&m).Pack()
	if err != nil {
		t.Fatal(err)
	}

	_ = ours.SetReadDeadline(time.Unix(1, 0)) // reads fail
	var reader sync.WaitGroup
	reader.Go(func() { n.readReplies(t.Context()) })
	for end := time.Now().Add(5 * time.Second); s.Counters().notices[NotifyAnswered].Load() == 0 && time.Now().Before(end); {
		time.Sleep(readPause)
		_ = ours.SetReadDeadline(time.Time{})
		if _, err := ours.WriteToUDPAddrPort(reply, secondary); err != nil {
			t.Fatal(err)
		}
	}
	ours.Close()
	reader.Wait()
	if got := s.Counters().notices[NotifyAnswered].Load(); got != 1 {
		t.Errorf("%d answers are read, want 1", got)
	}
}

// TestSlowClientIsAborted checks that the transfer of a slow client is aborted.
func TestSlowClientIsAborted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newDB(t)
		for i := range 8000 {
			grow(db, i)
		}
		s := newSender(t, db, nil)
		messages, _ := s.Begin(query("cluster.local"))
		began, last := time.Now(), time.Time{}
		for range messages(t.Context()) {
			last = time.Now()
			time.Sleep(50 * time.Second)
		}
		if took := last.Sub(began); took > transferTime {
			t.Errorf("a message %v behind the first", took)
		}
		if got := s.Counters().transfers[KindAXFR][ResultAborted].Load(); got != 1 {
			t.Errorf("%d transfers aborted, want 1", got)
		}
	})
}

// TestSigned checks that each message of the reply to a signed query is signed.
func TestSigned(t *testing.T) {
	db := newDB(t)
	for i := range 2000 {
		grow(db, i)
	}
	key := &dnswire.TSIGKey{Name: dnsname.MustParse("replica"), Algorithm: dnswire.HMACSHA256, Secret: []byte("a secret")}
	client, server := key.NewExchange(), key.NewExchange()
	if err := server.Verify(client.Sign(make([]byte, dnswire.HeaderLen), time.Now()), time.Now()); err != nil {
		t.Fatal(err)
	}
	q := query("cluster.local")
	q.Key, q.Exchange = key.Name, server
	messages, _ := newSender(t, db, nil).Begin(q)
	n := 0
	for m := range messages(t.Context()) {
		if err := client.Verify(bytes.Clone(m), time.Now()); err != nil || !client.LastSigned() {
			t.Errorf("message %d: %v", n, err)
		}
		n++
	}
	if n < 2 {
		t.Errorf("%d messages", n)
	}
}

// TestKeys checks that secrets are read from files, and that errors do not
// reveal the content.
func TestKeys(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct{ text, want string }{
		"good":   {base64.StdEncoding.EncodeToString(make([]byte, 16)) + "\n", ""},
		"short":  {base64.StdEncoding.EncodeToString(make([]byte, 15)), "a secret of 15 octets; the minimum is 16"},
		"words":  {"sesame open", "not a secret in base64"},
		"long":   {strings.Repeat("A", 5000), "not a secret in base64"},
		"absent": {"", "no such file or directory"},
	} {
		file := filepath.Join(dir, name)
		if c.text != "" {
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, err := New(Config{Keys: []KeyFile{{Name: apex, Algorithm: dnswire.HMACSHA256, File: file}}}, nil)
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "sesame")) {
			t.Errorf("%s: New = %v, want %q", name, err, c.want)
		}
	}
}

// TestNotifies checks that a secondary is notified of loaded zones, again while
// it is silent, and once for all changes since, no earlier than allowed.
func TestNotifies(t *testing.T) {
	db := newDB(t)
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	secondary := conn.LocalAddr().(*net.UDPAddr).AddrPort()
	s := newSender(t, db, func(c *Config) { c.Secondaries = func() []netip.AddrPort { return []netip.AddrPort{secondary} } })
	ours, err := net.ListenUDP("udp", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	n := &notifier{Sender: s, conn: ours, notices: make(map[noticeKey]*notice)}
	told := func() (zones map[string]uint32, replies [][]byte) {
		zones = make(map[string]uint32)
		for {
			buf := make([]byte, 1500)
			_ = conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			length, err := conn.Read(buf)
			if err != nil {
				return zones, replies
			}
			var m dns.Msg
			if err := m.Unpack(buf[:length]); err != nil {
				t.Fatal(err)
			}
			zones[m.Question[0].Name] = m.Answer[0].(*dns.SOA).Serial
			reply, _ := new(dns.Msg).SetReply(&m).Pack()
			replies = append(replies, reply)
		}
	}
	now := time.Now()
	want := func(claim string, zones map[string]uint32) (replies [][]byte) {
		t.Helper()
		n.notifyDue(now)
		got, replies := told()
		if fmt.Sprint(got) != fmt.Sprint(zones) {
			t.Errorf("%s: told of %v, want %v", claim, got, zones)
		}
		return replies
	}
	both := map[string]uint32{"cluster.local.": 100, "10.in-addr.arpa.": 100}
	want("at first", both)
	now = now.Add(retryTime - 1)
	want("too early", nil)
	now = now.Add(1)
	for _, reply := range want("again", both) {
		n.handleReply(secondary, reply[:5])
		n.handleReply(netip.MustParseAddrPort("127.0.0.1:1"), reply)
		n.handleReply(secondary, reply)
	}
	now = now.Add(time.Hour)
	want("answered", nil)
	grow(db, 1)
	want("changed", map[string]uint32{"cluster.local.": 101})
	grow(db, 2)
	grow(db, 3)
	now = now.Add(noticePause - 1)
	want("changed again, too early", nil)
	now = now.Add(1)
	want("changed again", map[string]uint32{"cluster.local.": 103})
	for range maxTries - 1 {
		now = now.Add(time.Hour)
		want("while it is silent", map[string]uint32{"cluster.local.": 103})
	}
	now = now.Add(time.Hour)
	want("given up", nil)
	secondary = netip.MustParseAddrPort("127.0.0.1:1")
	n.notifyDue(now)
	if len(n.notices) != 2 {
		t.Errorf("%d notices, want those to the new secondary", len(n.notices))
	}
}
