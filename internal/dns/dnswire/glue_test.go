package dnswire_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// collectGlue adds glue for each target of the answer section.
func collectGlue(r *response, glue func(name string) (dnswire.RRset, bool)) (targets []string, left int) {
	for target, at, next := r.SRVTarget(0); target != nil; target, at, next = r.SRVTarget(next) {
		name, taken, err := dnsname.FromWire(append(slices.Clone(target), 0))
		if err != nil || taken != len(target)+1 {
			r.t.Fatalf("SRVTarget = %q, which is read as %v, %v", target, name, err)
		}
		targets = append(targets, name.String())
		if set, ok := glue(name.String()); ok && !r.AddGlue(set, target, at) {
			left++
		}
	}
	return targets, left
}

func TestSRVTargetsAndGlue(t *testing.T) {
	glue := map[string][]string{
		"a.x.": {"A 10.0.0.1"}, "b.x.": {"A 10.0.0.2", "A 10.0.0.3"}, "c." + web: {"AAAA fd00::1"}, web: {"A 10.0.0.4"}, ".": {"A 10.0.0.5"},
	}
	tests := map[string]struct {
		alias   string
		targets []string // of the SRV records, in order
	}{
		"one record":                   {"", []string{"a.x."}},
		"distinct targets":             {"", []string{"a.x.", "b.x.", "c." + web}},
		"equal targets":                {"", []string{"b.x.", "b.x.", "b.x."}},
		"groups":                       {"", []string{"a.x.", "a.x.", "a.x.", "b.x.", "b.x.", "c." + web, "c." + web}},
		"two groups":                   {"", []string{"a.x.", "a.x.", "b.x.", "b.x."}},
		"a target without glue":        {"", []string{"a.x.", "nothing.x.", "nothing.x.", "b.x."}},
		"the question's name":          {"", []string{web, "c." + web}},
		"the root, that is no service": {"", []string{".", "a.x."}},
		"behind an alias":              {"CNAME db.shop.svc.cluster.local.", []string{"a.x.", "a.x.", "b.x."}},
		"behind an alias outside":      {"CNAME a.x.", []string{"a.x.", "b.x."}},
	}
	for claim, tt := range tests {
		t.Run(claim, func(t *testing.T) {
			var records []string
			for port, target := range tt.targets {
				records = append(records, fmt.Sprintf("SRV 0 100 %d %s", port, target))
			}
			for first := range records {
				r := ask(t, web, dnswire.TypeSRV, dnswire.MaxMessage)
				owner := web
				want := []string{}
				if tt.alias != "" {
					r.AddRRset(dnswire.Answer, rrset(t, tt.alias), 0)
					want = owned(web, tt.alias)
					owner = strings.Fields(tt.alias)[1]
				}
				r.AddRRset(dnswire.Answer, rrset(t, records...), first)
				want = append(want, owned(owner, rotated(records, first)...)...)

				got, left := collectGlue(r, func(name string) (dnswire.RRset, bool) {
					records, ok := glue[name]
					return rrset(t, records...), ok
				})
				var distinct, wantGlue []string
				for _, target := range rotated(tt.targets, first) {
					if !slices.Contains(distinct, target) {
						distinct = append(distinct, target)
						wantGlue = append(wantGlue, owned(target, glue[target]...)...)
					}
				}
				if !slices.Equal(got, distinct) || left != 0 {
					t.Errorf("SRVTarget of %q from %d on gives %q, %d without room, want %q, 0", records, first, got, left, distinct)
				}
				m := r.finish(0, dnswire.NoError)
				if !slices.Equal(texts(m.Answer), want) || !slices.Equal(texts(m.Extra), wantGlue) {
					t.Errorf("AddGlue for %q from %d on makes\n%q\n%q, want\n%q\n%q", records, first, texts(m.Answer), texts(m.Extra), want, wantGlue)
				}
			}
		})
	}
}

func TestAddGlueIsWholeOrNot(t *testing.T) {
	glue := rrset(t, "A 10.0.0.1", "A 10.0.0.2")
	srv := rrset(t, "SRV 0 100 80 a.x.")
	for room := range 2*16 + 2 {
		r := ask(t, web, dnswire.TypeSRV, dnswire.MinUDPSize)
		r.AddRRset(dnswire.Answer, srv, 0)
		r.Reserve(r.Room() - room)
		target, at, _ := r.SRVTarget(0)
		fits := r.AddGlue(glue, target, at)
		if want := room >= 2*16; fits != want {
			t.Errorf("AddGlue of two addresses = %v with %d octets of room, want %v", fits, room, want)
		}
		want := []string{}
		if fits {
			want = owned("a.x.", "A 10.0.0.1", "A 10.0.0.2")
		}
		if got := texts(r.finish(0, dnswire.NoError).Extra); !slices.Equal(got, want) {
			t.Errorf("AddGlue of two addresses with %d octets of room writes %q, want %q", room, got, want)
		}
	}
}

// TestAddGlueLeavesTheOwner checks that the RRset after glue is owned by the
// name in the question.
func TestAddGlueLeavesTheOwner(t *testing.T) {
	r := ask(t, web, dnswire.TypeSRV, dnswire.MinUDPSize)
	r.AddRRset(dnswire.Answer, rrset(t, "SRV 0 100 80 a.x."), 0)
	target, at, _ := r.SRVTarget(0)
	r.AddGlue(rrset(t, "A 10.0.0.1"), target, at)
	r.AddRRset(dnswire.Additional, rrset(t, "A 10.0.0.2"), 0)
	want := append(owned("a.x.", "A 10.0.0.1"), owned(web, "A 10.0.0.2")...)
	if got := texts(r.finish(0, dnswire.NoError).Extra); !slices.Equal(got, want) {
		t.Errorf("AddGlue and AddRRset write %q, want %q", got, want)
	}
}

// TestAddGlueFarBehind checks that a name beyond offset 16383, which
// compression pointers cannot reach (RFC 1035, section 4.1.4), is spelled out.
func TestAddGlueFarBehind(t *testing.T) {
	const count = 800
	var records []string
	for i := range count {
		records = append(records, fmt.Sprintf("SRV 0 100 80 target-%04d.x.", i))
	}
	r := ask(t, web, dnswire.TypeSRV, dnswire.MaxMessage)
	if !r.AddRRset(dnswire.Answer, rrset(t, records...), 0) {
		t.Fatalf("AddRRset of %d records = false, want true", count)
	}
	var want []string
	for target, at, next := r.SRVTarget(0); target != nil; target, at, next = r.SRVTarget(next) {
		name := strings.TrimPrefix(string(target[:12]), "\x0b") + ".x."
		if !r.AddGlue(rrset(t, "A 10.0.0.1"), target, at) {
			t.Errorf("AddGlue(_, %s, %d) = false, want true", name, at)
		}
		want = append(want, owned(name, "A 10.0.0.1")...)
	}
	var m dns.Msg
	if err := m.Unpack(r.octets(0, dnswire.NoError)); err != nil {
		t.Fatalf("Unpack: %v", err)
	}
	if len(m.Answer) != count || len(want) != count {
		t.Errorf("AddGlue adds %d records, for %d answers, want %d of both", len(want), len(m.Answer), count)
	}
	if got := texts(m.Extra); !slices.Equal(got, want) {
		t.Errorf("AddGlue writes\n%q, want\n%q", got, want)
	}
}

// TestAddGlueToTheLastPlace checks the last offset that a pointer reaches, and
// the next one.
func TestAddGlueToTheLastPlace(t *testing.T) {
	const (
		recordFixed, srvFixed = 12, 6
		lastPointable         = 1<<14 - 1
	)
	for place, length := range map[int]int{lastPointable: 2 + 14, lastPointable + 1: len("\x01a\x01x\x00") + 14} {
		r := ask(t, web, dnswire.TypeSRV, dnswire.MaxMessage)
		filler := make([]byte, place-srvFixed-2*recordFixed-r.Len())
		r.AddRRset(dnswire.Answer, dnswire.NewRRset(65280, 5, filler), 0)
		r.AddRRset(dnswire.Answer, rrset(t, "SRV 0 100 80 a.x."), 0)
		target, at, _ := r.SRVTarget(0)
		if string(target) != "\x01a\x01x" || at != place {
			t.Fatalf("SRVTarget(0) = %q, %d, want that of a.x. at %d", target, at, place)
		}
		before := r.Len()
		if !r.AddGlue(rrset(t, "A 10.0.0.1"), target, at) || r.Len()-before != length {
			t.Errorf("AddGlue(_, %d) writes %d octets, want %d", at, r.Len()-before, length)
		}
		records := owned("a.x.", "A 10.0.0.1")
		if got := texts(r.finish(0, dnswire.NoError).Extra); !slices.Equal(got, records) {
			t.Errorf("AddGlue(_, %d) writes %q, want %q", at, got, records)
		}
	}
}

// TestAddGlueSpelledOutIsWholeOrNot checks the same for owners that no pointer
// reaches, whose suffixes still point into the question.
func TestAddGlueSpelledOutIsWholeOrNot(t *testing.T) {
	tests := map[string]struct {
		target string
		owner  int // its length as written
	}{
		"a stranger":          {"a.x.", len("\x01a\x01x\x00")},
		"a child":             {"a." + web, len("\x01a\xc0\x0c")},
		"the question's name": {web, len("\xc0\x0c")},
		"the root":            {".", len("\x00")},
	}
	glue := []string{"A 10.0.0.1", "A 10.0.0.2"}
	for claim, tt := range tests {
		t.Run(claim, func(t *testing.T) {
			whole := len(glue) * (tt.owner + 14)
			for room := range whole + 2 {
				r := ask(t, web, dnswire.TypeSRV, dnswire.MaxMessage)
				r.AddRRset(dnswire.Answer, dnswire.NewRRset(65280, 5, make([]byte, 1<<14)), 0)
				r.AddRRset(dnswire.Answer, rrset(t, "SRV 0 100 80 "+tt.target), 0)
				r.Reserve(r.Room() - room)
				target, at, _ := r.SRVTarget(0)
				fits := r.AddGlue(rrset(t, glue...), target, at)
				if want := room >= whole; fits != want {
					t.Errorf("AddGlue(_, %s, %d) = %v with %d octets of room, want %v", tt.target, at, fits, room, want)
				}
				want := []string{}
				if fits {
					want = owned(tt.target, glue...)
				}
				if got := texts(r.finish(0, dnswire.NoError).Extra); !slices.Equal(got, want) {
					t.Errorf("AddGlue(_, %s, %d) with %d octets of room writes %q, want %q", tt.target, at, room, got, want)
				}
			}
		})
	}
}
