package dnswire_test

import (
	"fmt"
	"slices"
	"testing"

	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// readAnswer lists what an AnswerReader yields, and the question.
func readAnswer(message []byte) (records []string) {
	name := func(wire []byte) string {
		n, _, err := dnsname.FromWire(append(wire, 0))
		if err != nil {
			return err.Error()
		}
		return n.String()
	}
	r := dnswire.NewAnswerReader(message)
	records = append(records, name(r.AppendQuestion(nil)))
	for r.Next() {
		value := ""
		switch r.Type() {
		case dnswire.TypeCNAME:
			value = " " + name(r.AppendTarget(nil))
		case dnswire.TypeA, dnswire.TypeAAAA:
			value = " " + r.Addr().String()
		}
		records = append(records, fmt.Sprintf("%s %d %s%s", name(r.AppendOwner(nil)), r.TTL(), r.Type(), value))
	}
	return records
}

func TestAnswerReader(t *testing.T) {
	t.Parallel()
	message := replyTo(t, "www.example. 60 CNAME x.example.", "x.example. 30 A 192.0.2.1", "x.example. 30 TXT hello",
		"x.example. 2147483648 AAAA 2001:db8::1")
	want := []string{
		"www.example.", "www.example. 60 CNAME x.example.", "x.example. 30 A 192.0.2.1", "x.example. 30 TXT",
		"x.example. 0 AAAA 2001:db8::1",
	}
	if got := readAnswer(message); !slices.Equal(got, want) {
		t.Errorf("AnswerReader reads %q, want %q", got, want)
	}
	for n := range len(message) - 1 {
		if got := readAnswer(message[:n]); len(got) > len(want) || len(got) > 1 && !slices.Equal(got, want[:len(got)]) {
			t.Errorf("of the first %d octets AnswerReader reads %q", n, got)
		}
	}
}

func FuzzAnswerReader(f *testing.F) {
	f.Add(replyTo(f, everyType...))
	f.Add(replyTo(f, "www.example. 60 CNAME x.example.", "x.example. 30 A 192.0.2.1"))
	f.Fuzz(func(t *testing.T, message []byte) {
		r := dnswire.NewAnswerReader(message)
		if len(r.AppendQuestion(nil)) >= dnsname.MaxWire {
			t.Error("the question's name is too long")
		}
		for r.Next() {
			if len(r.AppendOwner(nil)) >= dnsname.MaxWire || len(r.AppendTarget(nil)) >= dnsname.MaxWire {
				t.Error("a name that is too long")
			}
			if isAddress := r.Type() == dnswire.TypeA || r.Type() == dnswire.TypeAAAA; r.Addr().IsValid() != isAddress {
				t.Errorf("%s has the address %v", r.Type(), r.Addr())
			}
			r.TTL()
			r.IsOfQuestion()
		}
	})
}
