package resolvconf

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

func TestParse(t *testing.T) {
	servers := func(texts ...string) Config { return Config{Nameservers: addrs(texts...)} }
	searches := func(names ...string) Config { return Config{Searches: names} }
	options := func(list ...Option) Config { return Config{Options: list} }
	tests := map[string]struct {
		text string
		want Config
	}{
		"empty file":                    {"", Config{}},
		"blank lines and comments only": {"\n \n\t\n# search a\n; search b\n#\n;\n  # indented\n\r\n", Config{}},
		"a Pod's file": {
			"search shop.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.96.0.10\noptions ndots:5\n",
			Config{
				Nameservers: addrs("10.96.0.10"),
				Searches:    []string{"shop.svc.cluster.local", "svc.cluster.local", "cluster.local"},
				Options:     []Option{{"ndots", "5"}},
			},
		},
		"nameservers add up, beyond three, twice the same": {
			"nameserver 10.0.0.1\nnameserver 10.0.0.2\nnameserver ::1\nnameserver 10.0.0.1\n",
			servers("10.0.0.1", "10.0.0.2", "::1", "10.0.0.1")},
		"a zone is kept":                           {"nameserver fe80::1%eth0\n", servers("fe80::1%eth0")},
		"an IPv4-mapped address stays one":         {"nameserver ::ffff:192.0.2.1\n", servers("::ffff:192.0.2.1")},
		"what follows an address is ignored":       {"nameserver 10.0.0.1 # first\n", servers("10.0.0.1")},
		"tabs, several blanks and trailing blanks": {"nameserver\t \t10.0.0.1 \t \nsearch\ta  b\t\n", Config{addrs("10.0.0.1"), []string{"a", "b"}, nil}},
		"CRLF":                           {"nameserver 10.0.0.1\r\nsearch a b \r\n\r\noptions edns0\r\n", Config{addrs("10.0.0.1"), []string{"a", "b"}, []Option{{"edns0", ""}}}},
		"the last line needs no newline": {"search a\nnameserver 10.0.0.1", Config{addrs("10.0.0.1"), []string{"a"}, nil}},
		"the last search wins":           {"search a b\nsearch c\n", searches("c")},
		"domain replaces search":         {"search a b\ndomain c\n", searches("c")},
		"search replaces domain":         {"domain c\nsearch a b\n", searches("a", "b")},
		"domain takes one name":          {"domain a b c\n", searches("a")},
		"more than six searches":         {"search a b c d e f g\n", searches("a", "b", "c", "d", "e", "f", "g")},
		"the root is a search domain":    {"search .\n", searches(".")},
		"names stay as they are spelt":   {"search Example.COM. Ünï.example\n", searches("Example.COM.", "Ünï.example")},
		"# within a line is no comment":  {"search a # b\n", searches("a", "#", "b")},
		"options lines add up":           {"options ndots:5 edns0\noptions rotate\n", options(Option{"ndots", "5"}, Option{"edns0", ""}, Option{"rotate", ""})},
		"a later option replaces an earlier one in its place": {
			"options ndots:5 edns0 ndots:2\noptions timeout:1 ndots\noptions ndots:15\n",
			options(Option{"ndots", "15"}, Option{"edns0", ""}, Option{"timeout", "1"})},
		"an option of no resolver is kept":                 {"options x-y:a:b\n", options(Option{"x-y", "a:b"})},
		"an empty value is no value":                       {"options ndots:\n", options(Option{"ndots", ""})},
		"options without any":                              {"options\noptions \n", Config{}},
		"other keywords are ignored":                       {"sortlist 10.0.0.0/255.0.0.0\nfamily inet4\nlookup file bind\nsearch a\nport 53\n", searches("a")},
		"a keyword ends at a blank":                        {"nameservers 10.0.0.1\nnameserver:10.0.0.1\nsearch=a\noptionsndots:5\n", Config{}},
		"keywords are lower case":                          {"Nameserver 10.0.0.1\nSEARCH a\n", Config{}},
		"control characters in ignored lines are accepted": {"# \x1b[31m\nblob \x00\x01\nsearch a\n", searches("a")},
	}
	for claim, test := range tests {
		t.Run(claim, func(t *testing.T) {
			got, problems, err := Parse(strings.NewReader(test.text))
			if err != nil || len(problems) > 0 || !reflect.DeepEqual(got, test.want) {
				t.Errorf("Parse(%q) = %#v, %v, %v, want %#v", test.text, got, problems, err, test.want)
			}
		})
	}
}

// In each text, the valid line after the invalid one counts.
func TestParseProblem(t *testing.T) {
	tests := map[string]struct {
		line string
		err  error
		text string // as in the Problem
	}{
		"a host name is no nameserver":      {"nameserver dns.example", ErrAddress, `line 2: nameserver "dns.example": not an IP address`},
		"an address with a port":            {"nameserver 10.0.0.1:53", ErrAddress, `line 2: nameserver "10.0.0.1:53": not an IP address`},
		"an address in brackets":            {"nameserver [::1]", ErrAddress, `line 2: nameserver "[::1]": not an IP address`},
		"an empty zone":                     {"nameserver fe80::1%", ErrAddress, `line 2: nameserver "fe80::1%": not an IP address`},
		"octets with leading zeros":         {"nameserver 010.0.0.1", ErrAddress, `line 2: nameserver "010.0.0.1": not an IP address`},
		"a comment for an address":          {"nameserver # none", ErrAddress, `line 2: nameserver "#": not an IP address`},
		"nameserver alone":                  {"nameserver", ErrAddress, `line 2: nameserver: not an IP address`},
		"search alone keeps the list":       {"search", ErrSearch, `line 2: search: no domain name`},
		"domain alone keeps the list":       {"domain", ErrSearch, `line 2: domain: no domain name`},
		"an option without a name":          {"options :5", ErrOption, `line 2: option ":5": option without a name`},
		"of two bad options the first":      {"options : :6", ErrOption, `line 2: option ":": option without a name`},
		"an indented nameserver":            {" nameserver 10.9.9.9", ErrIndented, `line 2: nameserver: keyword not in the first column`},
		"an indented search":                {"\tsearch x", ErrIndented, `line 2: search: keyword not in the first column`},
		"an escape sequence in a name":      {"search a\x1b[31m", ErrControl, `line 2: search: control character`},
		"a NUL in an address":               {"nameserver 10.0.0.1\x00", ErrControl, `line 2: nameserver: control character`},
		"a carriage return within the line": {"nameserver 10.0.0.1\rsearch b", ErrControl, `line 2: nameserver: control character`},
		"a line too long":                   {"search " + strings.Repeat("a", MaxLine), ErrLongLine, `line 2: line longer than 4096 octets`},
	}
	for claim, test := range tests {
		t.Run(claim, func(t *testing.T) {
			text := "search keep\n" + test.line + "\nnameserver 10.0.0.1\noptions edns0\n"
			want := Config{addrs("10.0.0.1"), []string{"keep"}, []Option{{"edns0", ""}}}
			got, problems, err := Parse(strings.NewReader(text))
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("Parse(%q) = %#v, _, %v, want %#v", text, got, err, want)
			}
			if len(problems) != 1 {
				t.Fatalf("Parse(%q) problems = %v, want one", text, problems)
			}
			p := problems[0]
			if p.Line != 2 || !errors.Is(p, test.err) || p.Error() != test.text {
				t.Errorf("Parse(%q) problem = %v (line %d), want %q", text, p, p.Line, test.text)
			}
			if want := test.line[:min(len(test.line), maxText)]; p.Text != want {
				t.Errorf("Parse(%q) problem's Text = %q, want %q", text, p.Text, want)
			}
		})
	}
}

func TestParseKeepsGoodOptionsOfABadLine(t *testing.T) {
	const text = "options ndots:5 :1 edns0\n"
	want := Config{Options: []Option{{"ndots", "5"}, {"edns0", ""}}}
	got, problems, err := Parse(strings.NewReader(text))
	if err != nil || len(problems) != 1 || !reflect.DeepEqual(got, want) {
		t.Errorf("Parse(%q) = %#v, %v, %v, want %#v and one problem", text, got, problems, err, want)
	}
}

func TestParseNumbersLines(t *testing.T) {
	const text = "# one\n\nnameserver x\r\nsearch a\nfamily inet\nnameserver y"
	_, problems, _ := Parse(strings.NewReader(text))
	if len(problems) != 2 || problems[0].Line != 3 || problems[0].Text != "nameserver x" || problems[1].Line != 6 {
		t.Errorf("Parse(%q) problems = %v, want lines 3 and 6", text, problems)
	}
}

// bound is a text at or beyond a limit of Parse, and the part that counts.
type bound struct {
	text        string
	nameservers int
	options     int
	problems    []int // their line numbers
	err         error // wrapped by each
}

func TestParseBounds(t *testing.T) {
	const server = "nameserver 10.0.0.1\n"
	filler := strings.Repeat("#\n", (MaxSize-len(server))/2)
	long := "options a:" + strings.Repeat("b", MaxLine-len("options a:"))
	tests := map[string]bound{
		"a line of MaxLine counts": {
			text: long + "\n" + server, nameservers: 1, options: 1},
		"blanks at its end are not of its length": {
			text: long + " \t \r\n" + server, nameservers: 1, options: 1},
		"a line beyond MaxLine is ignored entirely": {
			text: long + "b\n" + server, nameservers: 1, problems: []int{1}, err: ErrLongLine},
		"a comment may be longer": {
			text: "#" + strings.Repeat("x", 2*MaxLine) + "\n;" + strings.Repeat("x", 2*MaxLine) + "\n" + server, nameservers: 1},
		"a file of MaxSize counts": {
			text: filler + server + strings.Repeat("\n", MaxSize-len(filler)-len(server)), nameservers: 1},
		"a line whose newline is beyond MaxSize does not count": {
			text:     strings.Repeat("\n", MaxSize-len("search a")) + "search a\n",
			problems: []int{MaxSize - len("search a") + 1}, err: ErrTooLarge},
		"of a larger file, lines that end within MaxSize count": {
			text: server + filler + server + server, nameservers: 1, problems: []int{len(filler)/2 + 2}, err: ErrTooLarge},
		"a line cut at MaxSize is not half read": {
			text:        server + strings.Repeat("\n", MaxSize-len(server)-len("nameserver 10.0.0.1")) + "nameserver 10.0.0.123\n",
			nameservers: 1, problems: []int{MaxSize - len(server) - len("nameserver 10.0.0.1") + 2}, err: ErrTooLarge},
		"a large file of one line holds nothing": {
			text: "search " + strings.Repeat("a", MaxSize), problems: []int{1}, err: ErrTooLarge},
		"options together fit one line": {
			text: long + "\noptions edns0\noptions a:b\noptions rotate\n", options: 2, problems: []int{2}, err: ErrLongLine},
		"an address fits its line when written": {
			text:     "nameserver ::ffff:1:2%" + strings.Repeat("z", MaxLine-len("nameserver ::ffff:1:2%")) + "\n",
			problems: []int{1}, err: ErrLongLine},
	}
	for claim, test := range tests {
		t.Run(claim, func(t *testing.T) { test.check(t) })
	}
}

func (b bound) check(t *testing.T) {
	t.Helper()
	call := fmt.Sprintf("Parse(%.32q… of %d octets)", b.text, len(b.text))
	got, problems, err := Parse(strings.NewReader(b.text))
	if err != nil || len(got.Nameservers) != b.nameservers || len(got.Options) != b.options {
		t.Errorf("%s = %d nameservers, %d options, %v, want %d, %d",
			call, len(got.Nameservers), len(got.Options), err, b.nameservers, b.options)
	}
	var lines []int
	for _, p := range problems {
		lines = append(lines, p.Line)
		if !errors.Is(p, b.err) {
			t.Errorf("%s problem = %v, want %v", call, p, b.err)
		}
	}
	if !reflect.DeepEqual(lines, b.problems) {
		t.Errorf("%s problems = %v, want lines %v", call, problems, b.problems)
	}
}

// Addresses that grow when written still give a file that Parse reads in full.
func TestParseRoundTripOfLongAddresses(t *testing.T) {
	text := strings.Repeat("nameserver ::ffff:1:2\n", MaxSize/len("nameserver ::ffff:1:2\n"))
	c, problems, err := Parse(strings.NewReader(text))
	if err != nil || len(problems) == 0 || !errors.Is(problems[0], ErrTooLarge) {
		t.Fatalf("Parse(%d nameservers) = %d of them, %d problems, %v, want some beyond the limit",
			strings.Count(text, "\n"), len(c.Nameservers), len(problems), err)
	}
	again, problems, err := Parse(strings.NewReader(c.String()))
	if err != nil || len(problems) > 0 || !reflect.DeepEqual(again, c) {
		t.Errorf("Parse(c.String()) = %d nameservers, %v, %v, want %d",
			len(again.Nameservers), problems, err, len(c.Nameservers))
	}
}

func TestParseStopsAtTheLimit(t *testing.T) {
	r := &counter{}
	if _, _, err := Parse(r); err != nil || r.octets > MaxSize+1 {
		t.Errorf("Parse(endless) read %d octets, %v, want at most %d", r.octets, err, MaxSize+1)
	}
}

// counter is an endless comment that counts the octets read from it.
type counter struct{ octets int }

func (c *counter) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = '#'
	}
	c.octets += len(b)
	return len(b), nil
}

func TestParseReadError(t *testing.T) {
	broken := errors.New("input/output error")
	r := io.MultiReader(strings.NewReader("nameserver 10.0.0.1\nnameserver 10.0.0.2"), iotest.ErrReader(broken))
	c, problems, err := Parse(r)
	if !errors.Is(err, broken) || problems != nil || !reflect.DeepEqual(c, Config{}) {
		t.Errorf("Parse(broken) = %#v, %v, %v, want nothing and %v", c, problems, err, broken)
	}
}
