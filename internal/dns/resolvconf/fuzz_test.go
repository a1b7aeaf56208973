package resolvconf

import (
	"reflect"
	"strings"
	"testing"
)

// FuzzParse parses a text repeated several times, so that inputs reach the
// limits while they stay small. The fuzzer takes minutes to minimize large
// inputs.
func FuzzParse(f *testing.F) {
	for _, seed := range []struct {
		text  string
		times uint16
	}{
		{"", 1},
		{"search shop.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.96.0.10\noptions ndots:5\n", 1},
		{"# by hand\n; so is this\n\ndomain example.com\nsearch a b\nnameserver fe80::1%eth0 # uplink\n", 1},
		{"nameserver 10.0.0.1\r\nnameserver ::ffff:192.0.2.1\r\nnameserver ::ffff:1:2\r\nsearch .\r\n", 3},
		{"options ndots:5 edns0 ndots:2\noptions :1 x:a:b rotate ndots:\n", 2},
		{"nameserver dns.example\n nameserver 10.0.0.1\nnameserver\nsearch\ndomain\noptions\n", 2},
		{"sortlist 10.0.0.0/8\nfamily inet4\nlookup file bind\n", 1},
		{"search a\x00b\nsearch \x1b[31m\nsearch \xff\xfe ü # ;\nnameserver fe80::1%\r", 2},
		{"search a", MaxLine / 8},
		{"search a ", MaxLine / 8},
		{"options a:b ", MaxLine/12 + 1},
		{"nameserver ::ffff:1:2%z", MaxLine / 23},
		{"nameserver 1::3:4:5:6:7:8\n", MaxSize / 26},
		{"nameserver ::ffff:1:2\n", MaxSize/22 + 1},
	} {
		f.Add(seed.text, seed.times)
	}
	f.Fuzz(func(t *testing.T, unit string, times uint16) {
		text := strings.Repeat(unit, min(int(times), 2*MaxSize/max(1, len(unit))+1))
		c, problems, err := Parse(strings.NewReader(text))
		if err != nil {
			t.Fatalf("Parse(%q) fails: %v", text, err)
		}
		checkProblems(t, text, problems)
		written := c.String()
		checkBounds(t, text, written)
		again, problems, err := Parse(strings.NewReader(written))
		if err != nil || len(problems) > 0 || !reflect.DeepEqual(again, c) {
			t.Errorf("Parse(%q) = %#v, %v, %v, want %#v as of %q", written, again, problems, err, c, text)
		}
		if twice := again.String(); twice != written {
			t.Errorf("String() of Parse(%q) = %q", written, twice)
		}
	})
}

// checkProblems checks that there is at most one Problem per line, in order,
// each of bounded size.
func checkProblems(t *testing.T, text string, problems []Problem) {
	t.Helper()
	lines := strings.Count(text, "\n") + 1
	last := 0
	for _, p := range problems {
		if p.Line <= last || p.Line > lines {
			t.Errorf("Parse(%q): problem of line %d after that of line %d, of %d lines", text, p.Line, last, lines)
		}
		last = p.Line
		if len(p.Text) > maxText || !strings.Contains(text, p.Text) || len(p.Error()) > 1024 {
			t.Errorf("Parse(%q): problem %q with text %q", text, p, p.Text)
		}
	}
}

// checkBounds checks that the written text is no more than Parse reads, that
// all its lines end, and that it has at most one search line and one options
// line.
func checkBounds(t *testing.T, text, written string) {
	t.Helper()
	if len(written) > MaxSize || written != "" && !strings.HasSuffix(written, "\n") {
		t.Errorf("String() of Parse(%q) = %d octets: %q", text, len(written), written)
	}
	seen := make(map[string]int)
	for line := range strings.Lines(written) {
		keyword, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		seen[keyword]++
		if len(line)-1 > MaxLine || rest == "" {
			t.Errorf("String() of Parse(%q) has the line %q", text, line)
		}
	}
	if seen["search"] > 1 || seen["options"] > 1 || len(seen) > 3 {
		t.Errorf("String() of Parse(%q) has the lines %v: %q", text, seen, written)
	}
}
