package dnswire_test

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"portolan.dev/portolan/internal/dns/dnswire"
)

func TestOPT(t *testing.T) {
	type options struct {
		code  dnswire.OptionCode
		value string
	}
	tests := map[string]struct {
		size    uint16
		rcode   dnswire.RCode
		flags   dnswire.EDNSFlags
		options []options
		ede     string
		want    []dns.EDNS0
	}{
		"no option":         {size: 1232},
		"DO":                {size: 512, flags: dnswire.FlagDO},
		"an extended rcode": {size: 65535, rcode: dnswire.BadVers},
		"both, and more":    {size: 65535, rcode: 0xfff, flags: dnswire.FlagDO},
		"a cookie":          {options: []options{{dnswire.OptionCookie, "0123456789abcdef"}}, want: []dns.EDNS0{&dns.EDNS0_COOKIE{Cookie: hex.EncodeToString([]byte("0123456789abcdef"))}}},
		"an empty option":   {options: []options{{65001, ""}}, want: []dns.EDNS0{&dns.EDNS0_LOCAL{Code: 65001}}},
		"several options": {
			options: []options{{dnswire.OptionNSID, "here"}, {dnswire.OptionKeepalive, "\x01\x2c"}, {65001, "abc"}},
			want:    []dns.EDNS0{&dns.EDNS0_NSID{Nsid: hex.EncodeToString([]byte("here"))}, &dns.EDNS0_TCP_KEEPALIVE{Timeout: 300}, &dns.EDNS0_LOCAL{Code: 65001, Data: []byte("abc")}},
		},
		"an error": {ede: "no such Service", want: []dns.EDNS0{&dns.EDNS0_EDE{InfoCode: 14, ExtraText: "no such Service"}}},
		"an error behind an option": {
			rcode: dnswire.NXDomain, options: []options{{dnswire.OptionNSID, "here"}}, ede: "why",
			want: []dns.EDNS0{&dns.EDNS0_NSID{Nsid: hex.EncodeToString([]byte("here"))}, &dns.EDNS0_EDE{InfoCode: 14, ExtraText: "why"}},
		},
	}
	for claim, tt := range tests {
		t.Run(claim, func(t *testing.T) {
			for _, asText := range []bool{false, true} {
				r := ask(t, web, dnswire.TypeA, dnswire.MinUDPSize)
				at := r.Len()
				r.AddOPT(tt.size, tt.rcode, tt.flags)
				length := dnswire.OPTLen
				for _, o := range tt.options {
					if asText {
						r.AddOptionString(at, o.code, o.value)
					} else {
						r.AddOption(at, o.code, []byte(o.value))
					}
					length += dnswire.OptionLen(len(o.value))
				}
				if tt.ede != "" {
					r.AddEDE(at, dnswire.EDENotReady, tt.ede)
					length += dnswire.OptionLen(2 + len(tt.ede))
				}
				if got := r.Len() - at; got != length {
					t.Errorf("the OPT record has %d octets, OPTLen and OptionLen make it %d", got, length)
				}
				m := r.finish(0, tt.rcode)
				opt := m.IsEdns0()
				if opt == nil {
					t.Fatalf("AddOPT(%d, %v, %x) makes\n%v, want an OPT record", tt.size, tt.rcode, tt.flags, m)
				}
				if opt.UDPSize() != tt.size || m.Rcode != int(tt.rcode) || opt.Do() != (tt.flags != 0) || opt.Version() != 0 || opt.Z() != 0 {
					t.Errorf("AddOPT(%d, %v, %x) makes %v and rcode %d", tt.size, tt.rcode, tt.flags, opt, m.Rcode)
				}
				if got, want := fmt.Sprintf("%T %[1]v", opt.Option), fmt.Sprintf("%T %[1]v", tt.want); got != want {
					t.Errorf("options are %s, want %s", got, want)
				}
			}
		})
	}
}

func TestAddPadding(t *testing.T) {
	const limit = 1232
	for _, block := range []int{1, 128, 468} {
		for text := range 256 {
			for _, room := range []int{0, 3, 4, 5, block, limit} {
				r := ask(t, web, dnswire.TypeTXT, limit)
				set := rrset(t, `TXT "`+strings.Repeat("x", text)+`"`)
				r.AddRRset(dnswire.Answer, set, 0)
				at := r.Len()
				r.AddOPT(1232, dnswire.NoError, 0)
				r.AddOptionString(at, dnswire.OptionNSID, "here")
				r.Reserve(max(0, r.Room()-room))
				before, most := r.Len(), r.Len()+r.Room()
				r.AddPadding(at, block)

				// The next multiple with room for the option, or the limit.
				want := before + dnswire.OptionLen(0)
				for want%block != 0 && want < most {
					want++
				}
				padded := want <= most
				if !padded {
					want = before
				}
				if r.Len() != want {
					t.Fatalf("AddPadding(%d, %d) of %d octets with %d of room makes %d, want %d", at, block, before, room, r.Len(), want)
				}
				options := r.finish(0, dnswire.NoError).IsEdns0().Option
				last, isPadding := options[len(options)-1].(*dns.EDNS0_PADDING)
				if isPadding != padded || padded && strings.Trim(string(last.Padding), "\x00") != "" {
					t.Fatalf("AddPadding(%d, %d) of %d octets with %d of room makes options %v", at, block, before, room, options)
				}
			}
		}
	}
}

// TestAddEDE checks an EDE with text, without text, and omitted, as space
// allows.
func TestAddEDE(t *testing.T) {
	const text = "no such Service"
	withText := dnswire.OptionLen(2 + len(text))
	for room := range withText + 2 {
		r := ask(t, web, dnswire.TypeA, dnswire.MinUDPSize)
		at := r.Len()
		r.AddOPT(1232, dnswire.NoError, 0)
		r.Reserve(r.Room() - room)
		r.AddEDE(at, dnswire.EDEOther, text)
		want := "[]"
		switch {
		case room >= withText:
			want = "[0 (Other): (no such Service)]"
		case room >= dnswire.OptionLen(2):
			want = "[0 (Other): ()]"
		}
		if got := fmt.Sprint(r.finish(0, dnswire.NoError).IsEdns0().Option); got != want {
			t.Errorf("AddEDE with %d octets of room adds %s, want %s", room, got, want)
		}
	}
}
