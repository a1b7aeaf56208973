package query

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"portolan.dev/portolan/bench/load"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// difference is a permitted difference between answers of some contenders, with its
// reason.
type difference struct {
	who    []string
	reason string
	// forgive changes a record so that both sides look the same.
	forgive func(*dnswire.Record)
	seen    int
}

func differences() []*difference {
	weight := regexp.MustCompile(`^0 \d+ `)
	return []*difference{
		{
			who:    []string{coreDNS, coreDNSCached},
			reason: "SRV weights of headless Services: CoreDNS divides 100 by the number of endpoints",
			forgive: func(r *dnswire.Record) {
				if r.Type == "SRV" {
					r.Data = weight.ReplaceAllString(r.Data, "0 - ")
				}
			},
		},
		{
			who:     []string{coreDNSCached},
			reason:  "TTLs: they count down in CoreDNS' cache",
			forgive: func(r *dnswire.Record) { r.TTL = 0 },
		},
	}
}

// compared is the number of queries of each workload whose answers are compared.
const compared = 200

// agree sends all contenders the same queries. It returns an error if the code or the
// answer section of one differs from the first contender's without a listed reason. The
// order of records does not matter.
func (b *bench) agree() error {
	var peers []*contestant
	for _, c := range b.running {
		if c.name != echo {
			peers = append(peers, c)
		}
	}
	b.differences = listedFor(peers)
	var errs []error
	for i := range b.chosen {
		w := &b.chosen[i]
		b.log.Info("comparing answers", "workload", w.name)
		for _, q := range distinct(w.ask(&b.cluster, compared)) {
			b.answersCompared++
			if err := b.compare(q, w, peers); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", w.name, err))
			}
			const enough = 5
			if len(errs) == enough {
				return errors.Join(errs...)
			}
		}
	}
	return errors.Join(errs...)
}

// listedFor returns the permitted differences for these contenders.
func listedFor(peers []*contestant) (listed []*difference) {
	for _, d := range differences() {
		if slices.ContainsFunc(peers, func(c *contestant) bool { return slices.Contains(d.who, c.name) }) {
			listed = append(listed, d)
		}
	}
	return listed
}

// distinct returns the queries without duplicates.
func distinct(queries []query) (once []query) {
	seen := make(map[query]bool)
	for _, q := range queries {
		if !seen[q] {
			once = append(once, q)
		}
		seen[q] = true
	}
	return once
}

func (b *bench) compare(q query, w *workload, peers []*contestant) error {
	var first *dnswire.Message
	for _, c := range peers {
		if !w.suits(c) {
			continue
		}
		answer, err := q.askWhole(w.transport, c.address(w.transport))
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if first == nil {
			first = answer
		}
		if !explained(first, answer, c.name, b.differences) {
			return fmt.Errorf("%s: %s says\n%s\n%s says\n%s", q, peers[0].name, outline(first, nil), c.name,
				outline(answer, nil))
		}
	}
	return nil
}

// askWhole sends the query as the workload does, and repeats it over TCP if the answer
// is truncated.
func (q query) askWhole(transport load.Transport, server netip.AddrPort) (*dnswire.Message, error) {
	if transport.Secure() {
		return q.ask("tls", server)
	}
	if transport == load.UDP {
		answer, err := q.ask("udp", server)
		if err != nil || !slices.Contains(answer.Flags, "tc") {
			return answer, err
		}
	}
	return q.ask("tcp", server)
}

// explained reports whether two answers are the same except for listed differences, and
// counts the differences that were needed.
func explained(one, other *dnswire.Message, who string, listed []*difference) bool {
	var his []*difference
	for _, d := range listed {
		if slices.Contains(d.who, who) {
			his = append(his, d)
		}
	}
	same := func(forgiven []*difference) bool { return outline(one, forgiven) == outline(other, forgiven) }
	if !same(his) {
		return false
	}
	for i, d := range his {
		if !same(slices.Delete(slices.Clone(his), i, i+1)) {
			d.seen++
		}
	}
	return true
}

// outline returns what is compared: the code and the sorted answer section.
func outline(m *dnswire.Message, forgiven []*difference) string {
	lines := []string{m.Status}
	for _, r := range m.Answer {
		for _, d := range forgiven {
			d.forgive(&r)
		}
		lines = append(lines, strings.ToLower(r.String()))
	}
	slices.Sort(lines[1:])
	return strings.Join(lines, "\n")
}
