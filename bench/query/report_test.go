package query

import (
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/bench/load"
	"portolan.dev/portolan/bench/rig"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// sampleOf returns a sample with this cost per query and p99, in microseconds. A p99 of
// 0 means none.
func sampleOf(cost, p99 int) *sample {
	s := &sample{saturated: &load.Result{
		Elapsed: time.Second, Answered: 1000, ServerTime: time.Duration(1000*cost) * time.Microsecond,
	}}
	if p99 > 0 {
		s.steady = &load.Result{P99: time.Duration(p99) * time.Microsecond, Quiet: 1}
	}
	return s
}

func TestJudge(t *testing.T) {
	ours := []*sample{sampleOf(4, 10)}
	for what, c := range map[string]struct {
		theirs *sample
		of     figure
		limit  rig.Limit
		met    string
	}{
		"cheap enough":          {sampleOf(5, 0), cost, rig.AtMost(.8), "met"},
		"too dear":              {sampleOf(5, 0), cost, rig.AtMost(.7), "missed"},
		"fast enough":           {sampleOf(5, 0), speed, rig.AtLeast(1), "met"},
		"too slow":              {sampleOf(5, 0), speed, rig.AtLeast(2), "missed"},
		"the peer has no p99":   {sampleOf(5, 0), p99, rig.AtMost(.5), "met"},
		"the peer isn't there":  {nil, cost, rig.AtMost(1), ""},
		"the peer is as slow":   {sampleOf(4, 10), p99, rig.AtMost(1), "met"},
		"the peer is less slow": {sampleOf(4, 5), p99, rig.AtMost(1), "missed"},
	} {
		of := map[string][]*sample{portolan: ours}
		if c.theirs != nil {
			of[knot] = []*sample{c.theirs}
		}
		g := goal{of: c.of}
		if _, met := g.judge(of, knot, c.limit); met != c.met {
			t.Errorf("%s: judge says %q, want %q", what, met, c.met)
		}
	}
}

func TestFailedAnswersAreLost(t *testing.T) {
	r := &load.Result{Answered: 10, Lost: 1}
	r.RCodes[dnswire.NoError], r.RCodes[dnswire.NXDomain], r.RCodes[dnswire.ServFail] = 5, 3, 2
	if got, _ := lost(&sample{saturated: r, steady: r}); got != 6 {
		t.Errorf("%.0f are lost, want 6", got)
	}
}

func TestExplained(t *testing.T) {
	message := func(status string, records ...dnswire.Record) *dnswire.Message {
		return &dnswire.Message{Status: status, Answer: records}
	}
	srv := func(ttl uint32, data string) dnswire.Record {
		return dnswire.Record{Name: "a.", TTL: ttl, Type: "SRV", Data: data}
	}
	const one, light, two = "0 100 80 one.", "0 50 80 one.", "0 100 80 two."
	for what, c := range map[string]struct {
		who         string
		ours, other *dnswire.Message
		same        bool
		seen        []int // count of each listed difference
	}{
		"the same":        {knot, message("NOERROR", srv(5, one)), message("NOERROR", srv(5, one)), true, []int{0, 0}},
		"another order":   {knot, message("NOERROR", srv(5, one), srv(5, two)), message("NOERROR", srv(5, two), srv(5, one)), true, []int{0, 0}},
		"another code":    {knot, message("NOERROR"), message("NXDOMAIN"), false, []int{0, 0}},
		"another target":  {coreDNSCached, message("NOERROR", srv(5, one)), message("NOERROR", srv(5, two)), false, []int{0, 0}},
		"weight":          {coreDNS, message("NOERROR", srv(5, one)), message("NOERROR", srv(5, light)), true, []int{1, 0}},
		"weight of Knot":  {knot, message("NOERROR", srv(5, one)), message("NOERROR", srv(5, light)), false, []int{0, 0}},
		"TTL in a cache":  {coreDNSCached, message("NOERROR", srv(5, one)), message("NOERROR", srv(4, one)), true, []int{0, 1}},
		"TTL without one": {coreDNS, message("NOERROR", srv(5, one)), message("NOERROR", srv(4, one)), false, []int{0, 0}},
		"both":            {coreDNSCached, message("NOERROR", srv(5, one)), message("NOERROR", srv(4, light)), true, []int{1, 1}},
	} {
		listed := differences()
		if got := explained(c.ours, c.other, c.who, listed); got != c.same {
			t.Errorf("%s: explained = %t, want %t", what, got, c.same)
		}
		for i, d := range listed {
			if d.seen != c.seen[i] {
				t.Errorf("%s: %q was seen %d times, want %d", what, d.reason, d.seen, c.seen[i])
			}
		}
	}
}

func TestRateOfTheLoadGeneratorIsMarked(t *testing.T) {
	r := &results{samples: map[string]map[string][]*sample{"hits": {
		portolan: {sampleOf(950, 0)},
		knot:     {sampleOf(500, 0)},
	}}}
	for name, marked := range map[string]bool{portolan: false, knot: true} {
		var row strings.Builder
		r.writeRow(&row, "hits", name)
		if strings.Contains(row.String(), "≥") != marked {
			t.Errorf("%s: marked should be %t: %s", name, marked, &row)
		}
	}
}
