package frame

import (
	"encoding/hex"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var (
	here  = MAC{0x02, 0, 0, 0, 0, 0x01}
	there = MAC{0x02, 0, 0, 0, 0, 0x02}
	vip4  = netip.MustParseAddr("192.0.2.1")
	host4 = netip.MustParseAddr("192.0.2.9")
	vip6  = netip.MustParseAddr("2001:db8::12:3456")
	host6 = netip.MustParseAddr("2001:db8::9")
)

func octets(tb testing.TB, text string) []byte {
	tb.Helper()
	b, err := hex.DecodeString(strings.NewReplacer(" ", "", "\n", "", "\t", "").Replace(text))
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// request is an ARP request of host4 for vip4, octet by octet as RFC 826 has it.
func request(tb testing.TB) []byte {
	tb.Helper()
	return octets(tb, `ffffffffffff 020000000002 0806
		0001 0800 06 04 0001 020000000002 c0000209 000000000000 c0000201`)
}

// solicitation is a Neighbor Solicitation of host6 for vip6.
func solicitation(tb testing.TB) []byte {
	tb.Helper()
	return seal(octets(tb, `3333ff123456 020000000002 86dd
		60000000 0020 3a ff 20010db8000000000000000000000009 ff0200000000000000000001ff123456
		87 00 0000 00000000 20010db8000000000000000000123456 01 01 020000000002`))
}

// seal sets the checksum of a frame with ICMPv6.
func seal(b []byte) []byte {
	icmp := b[etherLen+ipv6Len:]
	icmp[2], icmp[3] = 0, 0
	// Written anew here: the sum of all words in ones' complement, RFC 1071.
	words := append(append(slices.Clone(b[etherLen+8:etherLen+40]), 0, 0, 0, byte(len(icmp)), 0, 0, 0, 58), icmp...)
	sum := 0
	for i := 0; i < len(words); i += 2 {
		if sum += int(words[i])<<8 | int(words[i+1]); sum > 0xffff {
			sum -= 0xffff
		}
	}
	icmp[2], icmp[3] = byte(^sum>>8), byte(^sum)
	return b
}

func TestRequest(t *testing.T) {
	t.Parallel()
	got, ok := ParseRequest(request(t))
	if want := (Request{there, host4, vip4}); !ok || got != want {
		t.Errorf("ParseRequest = %+v, %t, want %+v", got, ok, want)
	}
	want := octets(t, `020000000002 020000000001 0806
		0001 0800 06 04 0002 020000000001 c0000201 020000000002 c0000209`)
	if reply := AppendReply(nil, &got, here); !slices.Equal(reply, pad(want)) {
		t.Errorf("AppendReply = %x, want %x", reply, want)
	}
}

// TestMalformed: a frame with one thing wrong is not read.
func TestMalformed(t *testing.T) {
	t.Parallel()
	arps := map[string]func(b []byte) []byte{
		"short":                    func(b []byte) []byte { return b[:len(b)-1] },
		"empty":                    func([]byte) []byte { return nil },
		"another protocol":         func(b []byte) []byte { b[13] = 0; return b },
		"a reply":                  func(b []byte) []byte { b[21] = 2; return b },
		"another hardware":         func(b []byte) []byte { b[15] = 6; return b },
		"long addresses":           func(b []byte) []byte { b[19] = 16; return b },
		"a group as its sender":    func(b []byte) []byte { b[22] |= 1; return b },
		"no sender":                func(b []byte) []byte { copy(b[22:], make([]byte, 6)); return b },
		"the operation for agents": func(b []byte) []byte { b[21] = OpAgents; return b },
	}
	for claim, damage := range arps {
		if r, ok := ParseRequest(damage(request(t))); ok {
			t.Errorf("%s: ParseRequest = %+v", claim, r)
		}
	}
	const ip, icmp = etherLen, etherLen + ipv6Len
	solicitations := map[string]func(b []byte) []byte{
		"short":               func(b []byte) []byte { return b[:len(b)-1] },
		"empty":               func([]byte) []byte { return nil },
		"IPv4":                func(b []byte) []byte { b[ip] = 0x45; return b },
		"a hop limit of 254":  func(b []byte) []byte { b[ip+7] = 254; return b },
		"a wrong checksum":    func(b []byte) []byte { b[icmp+2]++; return b },
		"an advertisement":    func(b []byte) []byte { b[icmp] = typeAdvertise; return seal(b) },
		"a code":              func(b []byte) []byte { b[icmp+1] = 1; return seal(b) },
		"a group as target":   func(b []byte) []byte { b[icmp+8] = 0xff; return seal(b) },
		"a group as sender":   func(b []byte) []byte { b[ip+8] = 0xff; return seal(b) },
		"an empty option":     func(b []byte) []byte { b[icmp+25] = 0; return seal(b) },
		"an option too long":  func(b []byte) []byte { b[icmp+25] = 2; return seal(b) },
		"a header in between": func(b []byte) []byte { b[ip+6] = 0; return b },
		"no sender, with its MAC": func(b []byte) []byte {
			copy(b[ip+8:], make([]byte, 16))
			return seal(b)
		},
		"no sender, to one host": func(b []byte) []byte {
			copy(b[ip+8:], make([]byte, 16))
			copy(b[ip+24:], b[icmp+8:icmp+24])
			b[icmp+24] = 77
			return seal(b)
		},
	}
	for claim, damage := range solicitations {
		if s, ok := ParseSolicitation(damage(solicitation(t))); ok {
			t.Errorf("%s: ParseSolicitation = %+v", claim, s)
		}
	}
}

func TestSolicitation(t *testing.T) {
	t.Parallel()
	got, ok := ParseSolicitation(solicitation(t))
	if want := (Solicitation{there, host6, vip6}); !ok || got != want {
		t.Fatalf("ParseSolicitation = %+v, %t, want %+v", got, ok, want)
	}
	want := seal(octets(t, `020000000002 020000000001 86dd
		60000000 0020 3a ff 20010db8000000000000000000123456 20010db8000000000000000000000009
		88 00 0000 60000000 20010db8000000000000000000123456 02 01 020000000001`))
	if reply := AppendAdvertisement(nil, &got, here); !slices.Equal(reply, want) {
		t.Errorf("AppendAdvertisement = %x, want %x", reply, want)
	}
	got.Sender = netip.IPv6Unspecified()
	want = seal(octets(t, `333300000001 020000000001 86dd
		60000000 0020 3a ff 20010db8000000000000000000123456 ff020000000000000000000000000001
		88 00 0000 20000000 20010db8000000000000000000123456 02 01 020000000001`))
	if reply := AppendAdvertisement(nil, &got, here); !slices.Equal(reply, want) {
		t.Errorf("AppendAdvertisement without sender = %x, want %x", reply, want)
	}
	if all := Advertisement(vip6, here); !slices.Equal(all, want) {
		t.Errorf("Advertisement = %x, want %x", all, want)
	}
}

// TestAnnouncements: hosts learn from either form.
func TestAnnouncements(t *testing.T) {
	t.Parallel()
	got := Announcements(vip4, here)
	r, ok := ParseRequest(got[0])
	if !ok || r != (Request{here, vip4, vip4}) {
		t.Errorf("the first announcement is %+v, %t", r, ok)
	}
	for _, b := range got {
		if c, ok := ParseARPClaim(b); !ok || c != (Claim{here, vip4}) {
			t.Errorf("ParseARPClaim = %+v, %t, want %s at %x", c, ok, vip4, here)
		}
	}
	want := pad(octets(t, `ffffffffffff 020000000001 0806
		0001 0800 06 04 0002 020000000001 c0000201 020000000001 c0000201`))
	if !slices.Equal(got[1], want) {
		t.Errorf("the second announcement is %x, want %x", got[1], want)
	}
}

// TestClaims: what hosts say of themselves.
func TestClaims(t *testing.T) {
	t.Parallel()
	if c, ok := ParseARPClaim(request(t)); !ok || c != (Claim{there, host4}) {
		t.Errorf("of a question: %+v, %t, want %s at %x", c, ok, host4, there)
	}
	probe := request(t)
	copy(probe[28:32], []byte{0, 0, 0, 0})
	if c, ok := ParseARPClaim(probe); ok {
		t.Errorf("of a probe: %+v, want none", c)
	}
	if c, ok := ParseNeighborClaim(Advertisement(vip6, here)); !ok || c != (Claim{here, vip6}) {
		t.Errorf("of an advertisement: %+v, %t, want %s at %x", c, ok, vip6, here)
	}
	const length, options = etherLen + 5, etherLen + ipv6Len + solicitLen
	bare := Advertisement(vip6, here)[:options]
	copy(bare[6:], there[:])
	bare[length] = solicitLen
	if c, ok := ParseNeighborClaim(seal(bare)); !ok || c != (Claim{there, vip6}) {
		t.Errorf("of an advertisement without a MAC: %+v, %t, want %x", c, ok, there)
	}
	for claim, damage := range map[string]func([]byte){
		"a solicitation":  func(b []byte) { copy(b, solicitation(t)) },
		"a group":         func(b []byte) { b[options-solicitLen+8] = 0xff },
		"an empty option": func(b []byte) { b[options+1] = 0 },
		"a group's MAC":   func(b []byte) { b[options+2] |= 1 },
		"a far sender":    func(b []byte) { b[etherLen+7] = 254 },
	} {
		b := Advertisement(vip6, here)
		damage(b)
		if c, ok := ParseNeighborClaim(seal(b)); ok {
			t.Errorf("%s: %+v, want none", claim, c)
		}
	}
}

func TestMessage(t *testing.T) {
	t.Parallel()
	for claim, m := range map[string]Message{
		"empty":     {Kind: Active},
		"addresses": {Kind: Probe, Cluster: 1, From: 2, About: 3, Addrs: []netip.Addr{vip4, vip6}},
		"full":      {Kind: Deny, From: 1 << 63, Announced: 1 << 63, Addrs: slices.Repeat([]netip.Addr{vip6}, MaxAddrs)},
	} {
		b := AppendMessage(nil, &m, Broadcast, here)
		got, from, ok := ParseMessage(b)
		if diff := cmp.Diff(m, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" || !ok || from != here {
			t.Errorf("%s: ParseMessage(AppendMessage(m)) = from %x, %t (-want +got):\n%s", claim, from, ok, diff)
		}
		if _, _, ok := ParseMessage(b[:len(b)-1]); ok {
			t.Errorf("%s: a message was read whose end is missing", claim)
		}
		if len(b) > 1514 {
			t.Errorf("%s: %d octets do not fit into a frame", claim, len(b))
		}
		if _, ok := ParseRequest(b); ok {
			t.Errorf("%s: a message is a request of ARP", claim)
		}
	}
}

// FuzzParse: whatever comes from a link, nothing panics, and what is read has valid addresses.
func FuzzParse(f *testing.F) {
	f.Add(request(f))
	f.Add(solicitation(f))
	f.Add(AppendMessage(nil, &Message{Kind: Probe, Addrs: []netip.Addr{vip4, vip6}}, Broadcast, here))
	f.Add(Advertisement(vip6, here))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, ok := ParseRequest(b); ok {
			if _, ok := ParseRequest(AppendReply(nil, &r, here)); ok || !r.Target.Is4() || !r.Sender.Is4() {
				t.Errorf("ParseRequest(%x) = %+v", b, r)
			}
		}
		if s, ok := ParseSolicitation(b); ok {
			reply := AppendAdvertisement(nil, &s, here)
			if s.SenderMAC[0]&1 != 0 || checksum(reply[etherLen+8:etherLen+40], reply[etherLen+ipv6Len:]) != 0 {
				t.Errorf("ParseSolicitation(%x) = %+v", b, s)
			}
		}
		if c, ok := ParseARPClaim(b); ok && (!c.Addr.Is4() || c.MAC[0]&1 != 0) {
			t.Errorf("ParseARPClaim(%x) = %+v", b, c)
		}
		if c, ok := ParseNeighborClaim(b); ok && (!c.Addr.Is6() || c.MAC[0]&1 != 0) {
			t.Errorf("ParseNeighborClaim(%x) = %+v", b, c)
		}
		if m, from, ok := ParseMessage(b); ok {
			again, _, ok := ParseMessage(AppendMessage(nil, &m, Broadcast, from))
			if !ok || !cmp.Equal(m, again, cmpopts.EquateComparable(netip.Addr{})) {
				t.Errorf("ParseMessage(%x) = %+v, and again %+v", b, m, again)
			}
		}
	})
}
