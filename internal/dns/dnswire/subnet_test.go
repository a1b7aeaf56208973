package dnswire_test

import (
	"testing"

	"portolan.dev/portolan/internal/dns/dnswire"
)

// TestSubnet checks validity in queries and in replies (RFC 7871, section 6).
func TestSubnet(t *testing.T) {
	for value, want := range map[string]struct{ sound, asked bool }{
		"\x00\x01\x18\x00\xc0\x00\x02":                 {true, true},
		"\x00\x01\x18\x10\xc0\x00\x02":                 {true, false},
		"\x00\x01\x20\x00\xc0\x00\x02\x01":             {true, true},
		"\x00\x01\x14\x00\xc0\x00\xf0":                 {true, true},
		"\x00\x01\x14\x00\xc0\x00\xf8":                 {}, // a bit after the prefix
		"\x00\x01\x18\x00\xc0\x00":                     {}, // too short
		"\x00\x01\x18\x00\xc0\x00\x02\x00":             {}, // too long
		"\x00\x01\x21\x00\xc0\x00\x02\x01\x00":         {}, // longer than an address
		"\x00\x01\x18\x21\xc0\x00\x02":                 {},
		"\x00\x01\x00\x00":                             {true, true},
		"\x00\x02\x00\x00":                             {true, true},
		"\x00\x02\x38\x00\x20\x01\x0d\xb8\x00\x00\x00": {true, true},
		"\x00\x02\x39\x00\x20\x01\x0d\xb8\x00\x00\x00": {},
		"\x00\x00\x00\x00":                             {true, true}, // no family and no prefix
		"\x00\x00\x08\x00\x01":                         {},
		"\x00\x03\x00\x00":                             {},
		"\x00\x01\x00":                                 {},
		"":                                             {},
	} {
		s := dnswire.Subnet(value)
		if got := s.IsValid(); got != want.sound {
			t.Errorf("IsSound(%x) = %t", value, got)
		}
		if got := s.IsValidInQuery(); got != want.asked {
			t.Errorf("IsAsked(%x) = %t", value, got)
		}
	}
}

func TestSubnetAnswers(t *testing.T) {
	const asked = "\x00\x01\x18\x00\xc0\x00\x02"
	for value, want := range map[string]struct{ answers, forAll bool }{
		asked:                                  {true, true},
		"\x00\x01\x18\x10\xc0\x00\x02":         {true, false},
		"\x00\x01\x18\x20\xc0\x00\x02":         {true, false},
		"\x00\x01\x18\x21\xc0\x00\x02":         {false, false},
		"\x00\x01\x18\x18\xc0\x00\x03":         {false, false},
		"\x00\x01\x10\x10\xc0\x00":             {false, false},
		"\x00\x01\x20\x18\xc0\x00\x02\x00":     {false, false},
		"\x00\x02\x18\x18\xc0\x00\x02":         {false, false},
		"\x00\x01\x18\x00\xc0\x00\x02\x00\x00": {false, true},
	} {
		s := dnswire.Subnet(value)
		if got := s.Matches(dnswire.Subnet(asked)); got != want.answers {
			t.Errorf("%x answers %x: %t", value, asked, got)
		}
		if got := s.CoversAllClients(); got != want.forAll {
			t.Errorf("IsForAll(%x) = %t", value, got)
		}
	}
	if (dnswire.Subnet)(nil).CoversAllClients() || dnswire.Subnet("\x00\x01\x00\x00").CoversAllClients() {
		t.Error("what says nothing of a client is for all")
	}
}

// TestAddSubnetMalformed checks that an option that is invalid in a query is
// not repeated.
func TestAddSubnetMalformed(t *testing.T) {
	for _, value := range []string{"", "\x00", "\x00\x01\x18", "\x00\x01\x18\x18\xc0\x00\x02"} {
		var r dnswire.Response
		r.Start(make([]byte, 0, dnswire.MaxMessage), new(dnswire.Query), dnswire.MaxMessage)
		opt := r.Len()
		r.AddOPT(1232, dnswire.NoError, 0)
		before := r.Len()
		r.AddSubnet(opt, dnswire.Subnet(value), 24)
		if r.Len() != before {
			t.Errorf("%x is repeated", value)
		}
	}
}
