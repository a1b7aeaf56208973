package dnswire_test

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/miekg/dns"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

const tsigSecret = "a secret of some thirty-two octets"

var tsigTime = time.Unix(1_800_000_000, 0)

func tsigKey(a dnswire.TSIGAlgorithm) *dnswire.TSIGKey {
	return &dnswire.TSIGKey{Name: dnsname.MustParse("replica.Keys"), Algorithm: a, Secret: []byte(tsigSecret)}
}

// libraryMessage returns a message prepared for signing by the library.
func libraryMessage(a dnswire.TSIGAlgorithm, response bool, at time.Time) *dns.Msg {
	m := new(dns.Msg)
	m.SetAxfr("cluster.local.")
	m.Id, m.Response = 4711, response
	m.SetTsig("Replica.keys.", string(a)+".", 300, at.Unix())
	return m
}

// TestTSIGWithLibrary checks that each side verifies what the other signed: a
// query and a reply of several messages, for each algorithm.
func TestTSIGWithLibrary(t *testing.T) {
	secret := base64.StdEncoding.EncodeToString([]byte(tsigSecret))
	now := time.Now() // the library uses the system clock
	for _, a := range []dnswire.TSIGAlgorithm{dnswire.HMACSHA224, dnswire.HMACSHA256, dnswire.HMACSHA384, dnswire.HMACSHA512} {
		signs, checks := tsigKey(a).NewExchange(), tsigKey(a).NewExchange()
		mac := ""
		for i := range 4 {
			theirs, theirMAC, err := dns.TsigGenerate(libraryMessage(a, i > 0, now), secret, mac, i > 1)
			if err != nil {
				t.Fatal(err)
			}
			if err := checks.Verify(theirs, now); err != nil {
				t.Errorf("%s: Verify of the library's message %d: %v", a, i, err)
			}
			plain := libraryMessage(a, i > 0, now)
			plain.Extra = nil
			wire, err := plain.Pack()
			if err != nil {
				t.Fatal(err)
			}
			ours := signs.Sign(wire, now)
			if most := len(wire) + tsigKey(a).Overhead(); len(ours) > most {
				t.Errorf("%s: a signed message has %d octets, want %d at most", a, len(ours), most)
			}
			if err := dns.TsigVerify(ours, secret, mac, i > 1); err != nil {
				t.Errorf("%s: the library on our message %d: %v", a, i, err)
			}
			mac = theirMAC
		}
	}
}

// signed returns a query signed with tsigKey at tsigTime.
func signed(tb testing.TB) []byte {
	tb.Helper()
	return tsigKey(dnswire.HMACSHA256).NewExchange().Sign(unsigned(tb), tsigTime)
}

// unsigned returns that query without its signature.
func unsigned(tb testing.TB) []byte {
	tb.Helper()
	wire, err := dnswire.NewQuery(dnswire.QuerySpec{Name: "cluster.local", Type: dnswire.TypeAXFR, UDPSize: 1232})
	if err != nil {
		tb.Fatal(err)
	}
	binary.BigEndian.PutUint16(wire, 7)
	return wire
}

// TestTSIGRefused checks that each defect of a signature has its own error.
func TestTSIGRefused(t *testing.T) {
	query := signed(t)
	macAt := len(query) - 2 - 2 - 2 - 32 // before the original ID, the error and no other data
	cut := func(n int) []byte {
		short := append(append([]byte{}, query[:macAt+n]...), query[macAt+32:]...)
		binary.BigEndian.PutUint16(short[macAt-2:], uint16(n))
		rdlength := macAt - 2 - 2 - 6 - len("\x0bhmac-sha256\x00") - 2
		binary.BigEndian.PutUint16(short[rdlength:], binary.BigEndian.Uint16(short[rdlength:])-uint16(32-n))
		return short
	}
	changed := append([]byte{}, query...)
	changed[dnswire.HeaderLen+1] = 'C'
	otherName, otherAlgorithm, otherSecret := tsigKey(dnswire.HMACSHA256), tsigKey(dnswire.HMACSHA512), tsigKey(dnswire.HMACSHA256)
	otherName.Name, otherSecret.Secret = dnsname.MustParse("other"), []byte("wrong")
	behind := append(append([]byte{}, query...), "\x00\x00\x01\x00\x01\x00\x00\x00\x00\x00\x00"...)
	binary.BigEndian.PutUint16(behind[10:], 3)
	const fudge = 300 * time.Second
	for name, c := range map[string]struct {
		key     *dnswire.TSIGKey
		message []byte
		at      time.Time
		want    error
	}{
		"good":                {tsigKey(dnswire.HMACSHA256), query, tsigTime, nil},
		"just not too late":   {tsigKey(dnswire.HMACSHA256), query, tsigTime.Add(fudge), nil},
		"just not too early":  {tsigKey(dnswire.HMACSHA256), query, tsigTime.Add(-fudge), nil},
		"too late":            {tsigKey(dnswire.HMACSHA256), query, tsigTime.Add(fudge + time.Second), dnswire.ErrBadTime},
		"too early":           {tsigKey(dnswire.HMACSHA256), query, tsigTime.Add(-fudge - time.Second), dnswire.ErrBadTime},
		"other key":           {otherName, query, tsigTime, dnswire.ErrBadKey},
		"other algorithm":     {otherAlgorithm, query, tsigTime, dnswire.ErrBadKey},
		"other secret":        {otherSecret, query, tsigTime, dnswire.ErrBadSig},
		"changed":             {tsigKey(dnswire.HMACSHA256), changed, tsigTime, dnswire.ErrBadSig},
		"cut to half":         {tsigKey(dnswire.HMACSHA256), cut(16), tsigTime, dnswire.ErrBadTrunc},
		"cut to less":         {tsigKey(dnswire.HMACSHA256), cut(15), tsigTime, dnswire.ErrMalformed},
		"not signed":          {tsigKey(dnswire.HMACSHA256), unsigned(t), tsigTime, dnswire.ErrUnsigned},
		"a record behind":     {tsigKey(dnswire.HMACSHA256), behind, tsigTime, dnswire.ErrMalformed},
		"shorter than header": {tsigKey(dnswire.HMACSHA256), query[:11], tsigTime, dnswire.ErrMalformed},
	} {
		if err := c.key.NewExchange().Verify(c.message, c.at); !errors.Is(err, c.want) {
			t.Errorf("%s: Verify = %v, want %v", name, err, c.want)
		}
	}
}

// TestTSIGErrors checks error replies: unsigned if the query is not
// authenticated, signed and with the server's time if only its time is wrong.
func TestTSIGErrors(t *testing.T) {
	query, plain := signed(t), make([]byte, dnswire.HeaderLen)
	asked, err := dnswire.ReadTSIG(query)
	if err != nil || asked == nil {
		t.Fatalf("ReadTSIG = %v, %v", asked, err)
	}
	client := tsigKey(dnswire.HMACSHA256).NewExchange()
	client.Sign(unsigned(t), tsigTime)
	if err := client.Verify(dnswire.AppendTSIGError(plain, asked, dnswire.ErrBadSig), tsigTime); !errors.Is(err, dnswire.ErrBadSig) {
		t.Errorf("Verify of a refusal = %v, want %v", err, dnswire.ErrBadSig)
	}

	later := tsigTime.Add(time.Hour)
	server := tsigKey(dnswire.HMACSHA256).NewExchange()
	if err := server.Verify(query, later); !errors.Is(err, dnswire.ErrBadTime) {
		t.Fatalf("Verify = %v", err)
	}
	answer := server.SignBadTime(plain, asked, later)
	if err := client.Verify(answer, tsigTime); !errors.Is(err, dnswire.ErrBadTime) {
		t.Errorf("Verify of a refusal = %v, want %v", err, dnswire.ErrBadTime)
	}
	said, err := dnswire.ReadTSIG(answer)
	if err != nil {
		t.Fatal(err)
	}
	if want := []byte{0, 0, 0x6b, 0x49, 0xe0, 0x10}; string(said.Other) != string(want) { // 1,800,003,600
		t.Errorf("other data %x, want %x", said.Other, want)
	}
}

// TestTSIGUnsignedBetween checks that at most 99 messages between two signed
// ones may be unsigned, and that the next signature covers them.
func TestTSIGUnsignedBetween(t *testing.T) {
	for name, c := range map[string]struct {
		between int
		change  bool
		want    error
	}{
		"none":              {0, false, nil},
		"some":              {3, false, nil},
		"as many as may be": {99, false, nil},
		"too many":          {100, false, dnswire.ErrUnsigned},
		"one is changed":    {3, true, dnswire.ErrBadSig},
	} {
		if err := unsignedBetween(t, c.between, c.change); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// unsignedBetween verifies a reply with that many unsigned messages in it.
func unsignedBetween(t *testing.T, between int, change bool) error {
	t.Helper()
	message := func() []byte { return make([]byte, dnswire.HeaderLen) }
	server, client := tsigKey(dnswire.HMACSHA256).NewExchange(), tsigKey(dnswire.HMACSHA256).NewExchange()
	query := client.Sign(message(), tsigTime)
	if err := server.Verify(query, tsigTime); err != nil {
		t.Fatal(err)
	}
	if err := client.Verify(server.Sign(message(), tsigTime), tsigTime); err != nil {
		t.Fatal(err)
	}
	for i := range between {
		m := message()
		if err := server.Verify(m, tsigTime); err != nil { // which is covered by the next signature
			return err
		}
		if change && i == 1 {
			m[3] ^= 1
		}
		if err := client.Verify(m, tsigTime); err != nil {
			return err
		}
		if client.LastSigned() {
			t.Error("settled by an unsigned message")
		}
	}
	err := client.Verify(server.Sign(message(), tsigTime), tsigTime)
	if !client.LastSigned() {
		t.Error("not settled by a signed message")
	}
	return err
}

// FuzzTSIG checks that no message makes parsing panic and that no unsigned
// message verifies.
func FuzzTSIG(f *testing.F) {
	f.Add(signed(f))
	f.Add(signed(f)[:40])
	f.Fuzz(func(t *testing.T, message []byte) {
		read, err := dnswire.ReadTSIG(message)
		if err == nil && read != nil && read.MessageLen() > len(message) {
			t.Errorf("the record begins behind the message")
		}
		if tsigKey(dnswire.HMACSHA256).NewExchange().Verify(message, tsigTime) == nil && string(message) != string(signed(t)) {
			// Only the ID is not signed and may differ.
			if len(message) != len(signed(t)) || string(message[2:]) != string(signed(t)[2:]) {
				t.Errorf("Verify of %x is good", message)
			}
		}
		var q dnswire.Query
		if q.ParseHeader(message) == nil && q.ParseBody(message) == nil && read != nil && !q.HasTSIG() {
			t.Errorf("the query is not known to be signed")
		}
	})
}
