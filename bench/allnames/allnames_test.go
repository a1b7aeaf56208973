package allnames_test

import (
	"testing"

	"portolan.dev/portolan/bench/allnames"
	"portolan.dev/portolan/internal/dns/dnswire"
)

func query(t *testing.T, q dnswire.QuerySpec) []byte {
	t.Helper()
	wire, err := dnswire.NewQuery(q)
	if err != nil {
		t.Fatal(err)
	}
	return wire
}

func TestAnswer(t *testing.T) {
	addresses := make(map[string]bool)
	for what, c := range map[string]struct {
		question          dnswire.QuerySpec
		answer, authority int
	}{
		"A":                 {dnswire.QuerySpec{Name: "a.example.", Type: dnswire.TypeA, Flags: dnswire.FlagRD}, 1, 0},
		"A in another case": {dnswire.QuerySpec{Name: "A.eXample.", Type: dnswire.TypeA, Flags: dnswire.FlagRD}, 1, 0},
		"A with EDNS":       {dnswire.QuerySpec{Name: "a.example.", Type: dnswire.TypeA, UDPSize: 4096}, 1, 0},
		"the root":          {dnswire.QuerySpec{Name: ".", Type: dnswire.TypeAAAA}, 0, 1},
		"no AAAA":           {dnswire.QuerySpec{Name: "a.example.", Type: dnswire.TypeAAAA}, 0, 1},
	} {
		asked := query(t, c.question)
		wire, ok := allnames.AppendAnswer(nil, asked, 60)
		if !ok {
			t.Fatalf("%s: no answer", what)
		}
		m, err := dnswire.ParseMessage(wire)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if m.Status != "NOERROR" || len(m.Answer) != c.answer || len(m.Authority) != c.authority {
			t.Errorf("%s: the answer is %+v", what, m)
		}
		reply, err := dnswire.ParseReply(wire)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if _, _, exactly := reply.MatchQuery(asked); !exactly || reply.EDNS != (c.question.UDPSize > 0) {
			t.Errorf("%s: the reply is not to the query as it was asked", what)
		}
		for _, r := range m.Answer {
			addresses[r.Data] = true
			if r.TTL != 60 {
				t.Errorf("%s: the TTL is %d, want 60", what, r.TTL)
			}
		}
	}
	if len(addresses) != 1 {
		t.Errorf("one name has addresses %v", addresses)
	}
}

func TestNoAnswer(t *testing.T) {
	whole := query(t, dnswire.QuerySpec{Name: "a.example.", Type: dnswire.TypeA})
	for n := range len(whole) {
		if _, ok := allnames.AppendAnswer(nil, whole[:n], 60); ok {
			t.Errorf("%d octets of a query are answered", n)
		}
	}
	answer, _ := allnames.AppendAnswer(nil, whole, 60)
	if _, ok := allnames.AppendAnswer(nil, answer, 60); ok {
		t.Error("an answer is answered")
	}
}
