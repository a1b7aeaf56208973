package respond_test

import (
	"context"
	"encoding/binary"
	"errors"
	"iter"
	"slices"
	"testing"
	"time"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/respond"
)

var replicaKey = &dnswire.TSIGKey{Name: dnsname.MustParse("replica"), Algorithm: dnswire.HMACSHA256, Secret: []byte("a secret of some octets")}

// oneKey sends two messages for any transfer that is asked for, and knows one key.
type oneKey struct{ asked *respond.TransferQuery }

func (k *oneKey) Key(name dnsname.Name) *dnswire.TSIGKey {
	if name != replicaKey.Name {
		return nil
	}
	return replicaKey
}

func (k *oneKey) Begin(q *respond.TransferQuery) (respond.Messages, *respond.Refusal) {
	k.asked = q
	return func(context.Context) iter.Seq[[]byte] { return slices.Values([][]byte{[]byte("one"), []byte("two")}) }, nil
}

// TestSignatures checks that responses to signed queries of any kind are signed, also
// truncated ones, and the errors for invalid signatures (RFC 8945, section 5.2).
func TestSignatures(t *testing.T) {
	w := newWorker(t, respond.Config{Data: exampleDB(t), Transfers: new(oneKey)})
	asked := func() []byte {
		return query(t, dnswire.QuerySpec{Name: "db.shop.svc.cluster.local", Type: dnswire.TypeA, UDPSize: 512})
	}
	now := time.Now()
	otherSecret, otherName := *replicaKey, *replicaKey
	otherSecret.Secret, otherName.Name = []byte("another secret of some octets"), dnsname.MustParse("other")
	for name, c := range map[string]struct {
		key   *dnswire.TSIGKey
		at    time.Time
		rcode dnswire.RCode
		want  error
	}{
		"good":           {replicaKey, now, dnswire.NoError, nil},
		"another secret": {&otherSecret, now, dnswire.NotAuth, dnswire.ErrBadSig},
		"another name":   {&otherName, now, dnswire.NotAuth, dnswire.ErrBadKey},
		"another time":   {replicaKey, now.Add(-time.Hour), dnswire.NotAuth, dnswire.ErrBadTime},
	} {
		client := c.key.NewExchange()
		answer := respondNow(w, client.Sign(asked(), c.at), clientOver(respond.UDP))
		if err := client.Verify(answer, c.at); !errors.Is(err, c.want) {
			t.Errorf("%s: the answer's signature: %v, want %v", name, err, c.want)
		}
		if got := dnswire.RCode(binary.BigEndian.Uint16(answer[2:]) & 0xf); got != c.rcode || len(answer) > 512 {
			t.Errorf("%s: %s in %d octets, want %s in 512", name, got, len(answer), c.rcode)
		}
	}
	if answer := respondNow(w, asked(), clientOver(respond.UDP)); answer == nil {
		t.Error("no answer without a signature")
	} else if signed, err := dnswire.ReadTSIG(answer); signed != nil || err != nil {
		t.Errorf("signed without being asked to: %v", err)
	}
	malformed := replicaKey.NewExchange().Sign(asked(), now)
	binary.BigEndian.PutUint16(malformed[len(malformed)-2:], 9) // more other data than there is
	if answer := respondNow(w, malformed, clientOver(respond.UDP)); dnswire.RCode(answer[3]&0xf) != dnswire.FormErr {
		t.Errorf("a malformed signature: %x", answer)
	}
}

// changing says once that nothing is new, to who has what the zone is no more.
type changing struct {
	oneKey
	asked int
}

func (c *changing) Begin(q *respond.TransferQuery) (respond.Messages, *respond.Refusal) {
	if c.asked++; c.asked == 1 {
		return nil, nil
	}
	return c.oneKey.Begin(q)
}

// TestZoneChangesDuringIXFR checks that a single SOA over TCP, which means that the zone
// is unchanged, is not sent if it has just changed.
func TestZoneChangesDuringIXFR(t *testing.T) {
	packet := dnswire.AppendTransferQuery(nil, 1, dnsname.MustParse("cluster.local"), &dnswire.SOA{Zone: dnsname.MustParse("cluster.local"), Serial: 4711}, dnswire.OptionMetadata)
	transfers := new(changing)
	w := newWorker(t, respond.Config{Data: exampleDB(t), Transfers: transfers})
	answer, later := w.Respond(packet, clientOver(respond.TCP), make([]byte, 0, dnswire.MaxMessage))
	if answer != nil || later == nil || transfers.asked != 2 {
		t.Errorf("Respond = %x, %v, and it was asked %d times", answer, later, transfers.asked)
	}
	transfers.asked = 0
	answer, _ = w.Respond(packet, clientOver(respond.UDP), make([]byte, 0, dnswire.MaxMessage))
	if len(answer) < dnswire.HeaderLen || answer[7] != 1 {
		t.Errorf("over UDP: %x", answer)
	}
}

func clientOver(t respond.Transport) respond.Client {
	c := client
	c.Transport = t
	return c
}

// TestTransferQueries checks that transfer queries are parsed as sent, and that the
// transfer is sent message by message.
func TestTransferQueries(t *testing.T) {
	transfers := new(oneKey)
	w := newWorker(t, respond.Config{Data: exampleDB(t), Transfers: transfers})
	packet := query(t, dnswire.QuerySpec{Name: "Cluster.LOCAL", Type: dnswire.TypeAXFR, UDPSize: 1232, Options: map[dnswire.OptionCode][]byte{dnswire.OptionMetadata: nil}})
	packet = replicaKey.NewExchange().Sign(packet, time.Now())
	answer, later := w.Respond(packet, clientOver(respond.TCP), make([]byte, 0, dnswire.MaxMessage))
	if answer != nil || later == nil {
		t.Fatalf("Respond = %x, %v", answer, later)
	}
	var got []string
	for m := range later.Answers(t.Context()) {
		got = append(got, string(m))
	}
	if !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("messages %q", got)
	}
	q := transfers.asked
	if q.Zone != dnsname.MustParse("cluster.local") || q.Held != nil || q.Detail != 1 || q.Key != replicaKey.Name || q.Exchange == nil ||
		q.Repeats.ID != binary.BigEndian.Uint16(packet) || !q.Repeats.EDNS || string(q.Repeats.Question[1:8]) != "Cluster" {
		t.Errorf("asked for %+v", q)
	}
}
