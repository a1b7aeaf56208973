package scenario

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/dns/cache"
	"portolan.dev/portolan/internal/dns/forward"
	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/internal/support/budget"
)

// UpstreamAnswers has the responses of all upstreams by name and type, from a file of
//
//	> NAME TYPE
//	RCODE [ad]                or: silence
//	NAME TTL TYPE DATA        a record of the answer section
//	authority NAME TTL TYPE DATA
//	additional NAME TTL TYPE DATA
//
// The response to other queries is REFUSED. If a query has a client subnet (ECS), the
// response is for that subnet.
type UpstreamAnswers map[string]*dns.Msg

func key(name string, qtype uint16) string {
	return strings.ToLower(name) + " " + dns.TypeToString[qtype]
}

func parseUpstream(data []byte) (UpstreamAnswers, error) {
	u := make(UpstreamAnswers)
	scanner := bufio.NewScanner(bytes.NewReader(data))
	var m *dns.Msg
	for n := 1; scanner.Scan(); n++ {
		line := strings.TrimSpace(scanner.Text())
		if question, ok := strings.CutPrefix(line, "> "); ok {
			name, qtype, _ := strings.Cut(question, " ")
			m = new(dns.Msg)
			u[key(name, dns.StringToType[qtype])] = m
			continue
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := addReply(m, line); err != nil {
			return nil, fmt.Errorf("upstream:%d: %q: %w", n, line, err)
		}
	}
	return u, scanner.Err()
}

// silence is the code for no response.
const silence = -1

// addReply reads a line of a reply.
func addReply(m *dns.Msg, line string) error {
	fields := strings.Fields(line)
	if rcode, ok := dns.StringToRcode[fields[0]]; ok || fields[0] == "silence" {
		m.Rcode = rcode
		if !ok {
			m.Rcode = silence
		}
		m.AuthenticatedData = slices.Contains(fields, "ad")
		return nil
	}
	section := &m.Answer
	if rest, ok := strings.CutPrefix(line, "authority "); ok {
		line, section = rest, &m.Ns
	} else if rest, ok := strings.CutPrefix(line, "additional "); ok {
		line, section = rest, &m.Extra
	}
	rr, err := dns.NewRR(line)
	*section = append(*section, rr)
	return err
}

var errNoResponse = errors.New("no response")

// exchange answers a query.
func (u UpstreamAnswers) exchange(_ context.Context, _ forward.Upstream, query []byte) ([]byte, error) {
	var q dns.Msg
	if err := q.Unpack(query); err != nil {
		return nil, err
	}
	m := &dns.Msg{MsgHdr: dns.MsgHdr{Rcode: dns.RcodeRefused}}
	if found := u[key(q.Question[0].Name, q.Question[0].Qtype)]; found != nil {
		m = found.Copy()
	}
	if m.Rcode == silence {
		return nil, errNoResponse
	}
	m.Id, m.Response, m.Question = q.Id, true, q.Question
	m.RecursionDesired, m.RecursionAvailable = true, true
	m.Compress = true
	m.SetEdns0(1232, false)
	for _, option := range q.IsEdns0().Option {
		if s, ok := option.(*dns.EDNS0_SUBNET); ok {
			s.SourceScope = s.SourceNetmask
			m.IsEdns0().Option = append(m.IsEdns0().Option, s)
		}
	}
	return m.Pack()
}

// upstreams returns the forwarder of the configuration, which uses the UpstreamAnswers, or
// nil if nothing is forwarded.
func upstreams(tb testing.TB, s *Scenario, cfg config.Config, compiled *config.Compiled) respond.Upstreams {
	tb.Helper()
	if len(compiled.DNS.Routes) == 0 {
		return nil
	}
	kept, err := cache.New(compiled.DNS.Cache)
	if err != nil {
		tb.Fatal(err)
	}
	f, err := forward.New(forward.Config{
		Routes:   compiled.DNS.Routes,
		Cache:    kept,
		Zones:    compiled.DNS.Zone.Zones,
		Limits:   budget.Limits{Total: cfg.DNS.Forward.MaxInFlight, PerSource: cfg.DNS.Forward.MaxInFlightPerClient},
		Exchange: s.Upstream.exchange,
	})
	if err != nil {
		tb.Fatal(err)
	}
	return f
}
