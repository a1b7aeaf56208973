package dnsname_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/dns/dnsname"
)

// Names at the limits: three labels of 63+1 octets and one of 61+1 make 254,
// and the root's octet makes 255.
var (
	label63  = strings.Repeat("x", 63)
	label62  = strings.Repeat("x", 62)
	label61  = strings.Repeat("x", 61)
	threeOf  = label63 + "." + label63 + "." + label63 + "."
	name255  = threeOf + label61 + "."
	name256  = threeOf + label62 + "."
	labels   = strings.Repeat("a.", 127)
	escapedA = strings.Repeat(`\097`, 63)
)

func TestParse(t *testing.T) {
	tests := map[string]struct {
		in, want string // want is in the spelling of String
		labels   int
	}{
		"one dot is the root":                  {".", ".", 0},
		"the closing dot may be there":         {"www.example.", "www.example.", 2},
		"the closing dot may be left out":      {"www.example", "www.example.", 2},
		"ASCII letters lose their case":        {"WwW.AZ.az", "www.az.az.", 3},
		"neighbors of the letters keep it":     {"[`{.example", "[`{.example.", 2},
		"an escaped letter loses its case":     {`\A\090.example`, "az.example.", 2},
		"octets beyond ASCII are kept":         {"É.example", `\195\137.example.`, 2},
		"an escaped dot is part of its label":  {`a\.b.example`, `a\.b.example.`, 2},
		"an escaped backslash stands for one":  {`a\\.example`, `a\\.example.`, 2},
		"three digits are an octet":            {`\000\032\127\255.example`, `\000\032\127\255.example.`, 2},
		"digits behind an escape are text":     {`\0491.example`, "11.example.", 2},
		"special characters are written as \\": {`"();@$.example`, `\"\(\)\;\@\$.example.`, 2},
		"underscore, star and dash are plain":  {"_dns.*.a-b", "_dns.*.a-b.", 3},
		"a final escaped dot closes nothing":   {`example\.`, `example\..`, 1},
		"a space is written as an octet":       {"a b", `a\032b.`, 1},
		"a label may have 63 octets":           {label63, label63 + ".", 1},
		"an escape is one octet of its label":  {escapedA, strings.Repeat("a", 63) + ".", 1},
		"a name may have 255 octets":           {name255, name255, 4},
		"also without its closing dot":         {strings.TrimSuffix(name255, "."), name255, 4},
		"a name may have 127 labels":           {labels, labels, 127},
	}
	for claim, tt := range tests {
		t.Run(claim, func(t *testing.T) {
			n, err := dnsname.Parse(tt.in)
			if err != nil {
				t.Fatalf("Parse(%q): %v", tt.in, err)
			}
			if got := n.String(); got != tt.want {
				t.Errorf("Parse(%q).String() = %q, want %q", tt.in, got, tt.want)
			}
			if again, err := dnsname.Parse(n.String()); err != nil || again != n {
				t.Errorf("Parse(%q) = %v, %v, want %v", n.String(), again, err, n)
			}
			if got := n.Labels(); got != tt.labels {
				t.Errorf("Parse(%q).Labels() = %d, want %d", tt.in, got, tt.labels)
			}
			if got := n.IsRoot(); got != (tt.labels == 0) {
				t.Errorf("Parse(%q).IsRoot() = %v, want %v", tt.in, got, tt.labels == 0)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	tests := map[string]struct {
		in   string
		want error
	}{
		"nothing":                          {"", dnsname.ErrEmptyLabel},
		"two dots":                         {"..", dnsname.ErrEmptyLabel},
		"an empty first label":             {".example", dnsname.ErrEmptyLabel},
		"an empty inner label":             {"www..example", dnsname.ErrEmptyLabel},
		"two closing dots":                 {"example..", dnsname.ErrEmptyLabel},
		"a last label of 64 octets":        {"www.x" + label63, dnsname.ErrLongLabel},
		"an inner label of 64 octets":      {"x" + label63 + ".example", dnsname.ErrLongLabel},
		"64 octets, one of them escaped":   {`\.` + label63 + ".example", dnsname.ErrLongLabel},
		"a name of 256 octets":             {name256, dnsname.ErrLongName},
		"one without its closing dot":      {strings.TrimSuffix(name256, "."), dnsname.ErrLongName},
		"128 labels":                       {labels + "a.", dnsname.ErrLongName},
		"a backslash at the end":           {`example\`, dnsname.ErrEscape},
		"an escape of one digit":           {`\1`, dnsname.ErrEscape},
		"an escape of two digits":          {`\12`, dnsname.ErrEscape},
		"two digits and a letter":          {`\12a.example`, dnsname.ErrEscape},
		"a digit, a letter and a digit":    {`\1a2.example`, dnsname.ErrEscape},
		"an escape of more than one octet": {`\256.example`, dnsname.ErrEscape},
	}
	for claim, tt := range tests {
		t.Run(claim, func(t *testing.T) {
			n, err := dnsname.Parse(tt.in)
			if !errors.Is(err, tt.want) || n != dnsname.Root {
				t.Fatalf("Parse(%q) = %v, %v, want the root and %v", tt.in, n, err, tt.want)
			}
			if !strings.Contains(err.Error(), fmt.Sprintf("%q", tt.in)) {
				t.Errorf("Parse(%q): error %q does not name it", tt.in, err)
			}
		})
	}
}

func TestMustParse(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Errorf(`MustParse("..") did not panic`)
		}
	}()
	if got, want := dnsname.MustParse("A.b").String(), "a.b."; got != want {
		t.Errorf(`MustParse("A.b") = %q, want %q`, got, want)
	}
	dnsname.MustParse("..")
}

func TestFoldsASCIIOnly(t *testing.T) {
	for c := range 256 {
		want := byte(c)
		if 'A' <= c && c <= 'Z' {
			want += 'a' - 'A'
		}
		octet := string([]byte{byte(c)})
		child, err := dnsname.Root.Child(octet)
		if err != nil || child.Label() != string([]byte{want}) {
			t.Errorf("Root.Child(%q).Label() = %q, %v, want %q", octet, child.Label(), err, []byte{want})
		}
		wire := []byte{1, byte(c), 0}
		if n, _, err := dnsname.FromWire(wire); err != nil || n != child {
			t.Errorf("FromWire(%q) = %v, %v, want %v", wire, n, err, child)
		}
		escaped := fmt.Sprintf(`\%03d`, c)
		if n, err := dnsname.Parse(escaped); err != nil || n != child {
			t.Errorf("Parse(%q) = %v, %v, want %v", escaped, n, err, child)
		}
		if n, err := dnsname.Parse(child.String()); err != nil || n != child {
			t.Errorf("Parse(%q) = %v, %v, want %v", child.String(), n, err, child)
		}
		if got := dnsname.AppendLower([]byte("Kept"), []byte{byte(c)}); !bytes.Equal(got, []byte{'K', 'e', 'p', 't', want}) {
			t.Errorf(`AppendLower("Kept", %q) = %q, want %q behind it`, octet, got, want)
		}
	}
}

// wireOf returns the wire form of labels, without checking them.
func wireOf(labels ...string) string {
	var b strings.Builder
	for _, l := range labels {
		b.WriteByte(byte(len(l)))
		b.WriteString(l)
	}
	return b.String() + "\x00"
}

func TestFromWire(t *testing.T) {
	tests := map[string]struct {
		wire  string
		want  string
		taken int
	}{
		"one octet is the root":       {"\x00", ".", 1},
		"letters lose their case":     {"\x03WwW\x02Az\x00", "www.az.", 8},
		"what follows is left":        {"\x01a\x00\x01b\x00", "a.", 3},
		"a dot in a label is escaped": {"\x03a.b\x00", `a\.b.`, 5},
		"a label may have 63 octets":  {wireOf(label63), label63 + ".", 65},
		"a name may have 255 octets":  {wireOf(label63, label63, label63, label61) + "more", name255, 255},
	}
	for claim, tt := range tests {
		t.Run(claim, func(t *testing.T) {
			n, taken, err := dnsname.FromWire([]byte(tt.wire))
			if err != nil || n.String() != tt.want || taken != tt.taken {
				t.Errorf("FromWire(%q) = %v, %d, %v, want %v, %d", tt.wire, n, taken, err, tt.want, tt.taken)
			}
		})
	}
}

func TestFromWireRefuses(t *testing.T) {
	tests := map[string]string{
		"nothing":                        "",
		"a name without its end":         "\x03www",
		"one that ends behind a label":   "\x03www\x02az",
		"a label cut short":              "\x03ww",
		"a length octet alone":           "\x01",
		"a compression pointer":          "\xc0\x0c",
		"a pointer behind a label":       "\x03www\xc0\x0c\x00",
		"a label of 64 octets":           wireOf("x" + label63),
		"a label type of EDNS":           "\x41\x00\x00",
		"a name of 256 octets":           wireOf(label63, label63, label63, label62),
		"one of many more octets":        wireOf(label63, label63, label63, label63, label63),
		"128 labels":                     wireOf(slices.Repeat([]string{"a"}, 128)...),
		"254 octets that have no end":    strings.TrimSuffix(wireOf(label63, label63, label63, label61), "\x00"),
		"255 octets that have no end":    strings.TrimSuffix(wireOf(label63, label63, label63, label62), "\x00"),
		"a pointer where the end should": strings.TrimSuffix(wireOf(label63, label63, label63, label61), "\x00") + "\xc0\x0c",
	}
	for claim, wire := range tests {
		t.Run(claim, func(t *testing.T) {
			n, taken, err := dnsname.FromWire([]byte(wire))
			if !errors.Is(err, dnsname.ErrWire) || n != dnsname.Root || taken != 0 {
				t.Errorf("FromWire(%q) = %v, %d, %v, want the root, 0, %v", wire, n, taken, err, dnsname.ErrWire)
			}
		})
	}
}

func TestWire(t *testing.T) {
	n := dnsname.MustParse("WWW.example")
	const labels = "\x03www\x07example"
	if got := n.WireLabels(); got != labels {
		t.Errorf("%v.WireLabels() = %q, want %q", n, got, labels)
	}
	if got, want := string(n.AppendWire([]byte("before"))), "before"+labels+"\x00"; got != want {
		t.Errorf(`%v.AppendWire("before") = %q, want %q`, n, got, want)
	}
	for _, n := range []dnsname.Name{n, dnsname.Root, dnsname.MustParse(name255)} {
		if got, want := n.WireLen(), len(n.AppendWire(nil)); got != want {
			t.Errorf("%v.WireLen() = %d, want %d", n, got, want)
		}
	}
}

func TestChild(t *testing.T) {
	tests := map[string]struct {
		parent, label string
		want          string // or
		err           error
	}{
		"below the root":                  {".", "local", "local.", nil},
		"below a name":                    {"cluster.local", "svc", "svc.cluster.local.", nil},
		"letters lose their case":         {"local", "Cluster", "cluster.local.", nil},
		"a dot is part of the label":      {"local", "a.b", `a\.b.local.`, nil},
		"a backslash escapes nothing":     {"local", `\065`, `\\065.local.`, nil},
		"a label may have 63 octets":      {"local", label63, label63 + ".local.", nil},
		"a label of 64 octets is refused": {"local", "x" + label63, "", dnsname.ErrLongLabel},
		"an empty label is refused":       {"local", "", "", dnsname.ErrEmptyLabel},
		"the name may have 255 octets":    {threeOf, label61, label61 + "." + threeOf, nil},
		"a name of 256 octets is refused": {threeOf, label62, "", dnsname.ErrLongName},
	}
	for claim, tt := range tests {
		t.Run(claim, func(t *testing.T) {
			parent := dnsname.MustParse(tt.parent)
			n, err := parent.Child(tt.label)
			if tt.err != nil {
				if !errors.Is(err, tt.err) || n != dnsname.Root {
					t.Errorf("%v.Child(%q) = %v, %v, want the root and %v", parent, tt.label, n, err, tt.err)
				}
				return
			}
			if err != nil || n.String() != tt.want {
				t.Fatalf("%v.Child(%q) = %v, %v, want %v", parent, tt.label, n, err, tt.want)
			}
			if n.Parent() != parent {
				t.Errorf("%v.Parent() = %v, want %v", n, n.Parent(), parent)
			}
			if got, want := n.Label(), strings.ToLower(tt.label); got != want {
				t.Errorf("%v.Label() = %q, want %q", n, got, want)
			}
			if got, want := n.Labels(), parent.Labels()+1; got != want {
				t.Errorf("%v.Labels() = %d, want %d", n, got, want)
			}
		})
	}
}

func TestRoot(t *testing.T) {
	var zero dnsname.Name
	if zero != dnsname.Root || !zero.IsRoot() || zero.String() != "." {
		t.Errorf("Name{} = %v, want the root", zero)
	}
	if got := zero.Parent(); got != dnsname.Root {
		t.Errorf("Root.Parent() = %v, want the root", got)
	}
	if got := zero.Label(); got != "" {
		t.Errorf("Root.Label() = %q, want none", got)
	}
}

func TestUnder(t *testing.T) {
	tests := map[string]struct {
		name, zone string
		want       string // or
		err        error
	}{
		"labels go before the zone's":     {"ns.dns", "cluster.local", "ns.dns.cluster.local.", nil},
		"under the root nothing changes":  {"ns.dns", ".", "ns.dns.", nil},
		"the root is the zone":            {".", "cluster.local", "cluster.local.", nil},
		"the name may have 255 octets":    {label61, threeOf, label61 + "." + threeOf, nil},
		"a name of 256 octets is refused": {label62, threeOf, "", dnsname.ErrLongName},
	}
	for claim, tt := range tests {
		t.Run(claim, func(t *testing.T) {
			name, zone := dnsname.MustParse(tt.name), dnsname.MustParse(tt.zone)
			n, err := name.Under(zone)
			if tt.err != nil {
				if !errors.Is(err, tt.err) || n != dnsname.Root {
					t.Errorf("%v.Under(%v) = %v, %v, want the root and %v", name, zone, n, err, tt.err)
				}
				return
			}
			if err != nil || n.String() != tt.want {
				t.Fatalf("%v.Under(%v) = %v, %v, want %v", name, zone, n, err, tt.want)
			}
			if !n.IsSubdomainOf(zone) {
				t.Errorf("%v.IsSubdomainOf(%v) = false, want true", n, zone)
			}
		})
	}
}

func TestIsSubdomainOf(t *testing.T) {
	tests := map[string]struct {
		name, zone string
		want       bool
	}{
		"a name is its own":                       {"cluster.local", "cluster.local", true},
		"a child is":                              {"svc.cluster.local", "cluster.local", true},
		"a distant descendant is":                 {"a.b.c.d.cluster.local", "cluster.local", true},
		"all are the root's":                      {"cluster.local", ".", true},
		"the root is its own":                     {".", ".", true},
		"the root is in no other zone":            {".", "local", false},
		"a parent is not":                         {"local", "cluster.local", false},
		"a sibling is not":                        {"other.local", "cluster.local", false},
		"a like end inside a label is not":        {"mycluster.local", "cluster.local", false},
		"an octet that looks like a length":       {`my\007cluster.local`, "cluster.local", false},
		"the same labels in another zone are not": {"cluster.local.example", "cluster.local", false},
		"a name as long as the zone is compared":  {"clusted.local", "cluster.local", false},
	}
	for claim, tt := range tests {
		t.Run(claim, func(t *testing.T) {
			name, zone := dnsname.MustParse(tt.name), dnsname.MustParse(tt.zone)
			if got := name.IsSubdomainOf(zone); got != tt.want {
				t.Errorf("%v.IsSubdomainOf(%v) = %v, want %v", name, zone, got, tt.want)
			}
		})
	}
}

// TestCompareRFC4034 holds the list of RFC 4034, section 6.1, with names before
// and after it.
func TestCompareRFC4034(t *testing.T) {
	var names []dnsname.Name
	for _, s := range []string{
		".", "a", `a\000`, "aa", "ab",
		"example", "a.example", "yljkjljk.a.example", "Z.a.example", "zABC.a.EXAMPLE",
		"z.example", `\001.z.example`, "*.z.example", `\200.z.example`,
	} {
		names = append(names, dnsname.MustParse(s))
	}
	for i, a := range names {
		for j, b := range names {
			if got, want := sign(a.Compare(b)), sign(i-j); got != want {
				t.Errorf("%v.Compare(%v) = %d, want %d", a, b, got, want)
			}
		}
	}
}

func sign(n int) int { return min(1, max(-1, n)) }

func TestCompareAgreesWithLabelLists(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	alphabet := []string{"a", "b", "aa", "ab", "\x00", "\xff", "a\x00", "-"}
	random := func() (n dnsname.Name, labels []string) {
		for range rnd.IntN(5) {
			l := alphabet[rnd.IntN(len(alphabet))]
			n, _ = n.Child(l)
			labels = append(labels, l)
		}
		return n, labels
	}
	for range 10_000 {
		a, aLabels := random()
		b, bLabels := random()
		if got, want := sign(a.Compare(b)), slices.Compare(aLabels, bLabels); got != want {
			t.Fatalf("%v.Compare(%v) = %d, want %d", a, b, got, want)
		}
	}
}

func FuzzName(f *testing.F) {
	for _, s := range []string{
		"", ".", "..", "a", "A.b.", `\.`, `\000.x`, `\255\\\..x`, `\256`, `a\`, "É.x", `"();@$ .x`,
		label63, label63 + "x", name255, name256, labels, labels + "b", escapedA,
		"\x03www\x07Example\x00", "\x00", "\xc0\x0c", wireOf(label63, label63, label63, label61),
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, taken, err := dnsname.FromWire([]byte(s)); err == nil {
			checkName(t, n)
			if got, want := n.AppendWire(nil), dnsname.AppendLower(nil, []byte(s[:taken])); !bytes.Equal(got, want) {
				t.Errorf("FromWire(%q).AppendWire(nil) = %q, want %q", s, got, want)
			}
		}
		n, err := dnsname.Parse(s)
		if err == nil {
			checkName(t, n)
			return
		}
		for _, known := range []error{dnsname.ErrEmptyLabel, dnsname.ErrLongLabel, dnsname.ErrLongName, dnsname.ErrEscape} {
			if errors.Is(err, known) {
				return
			}
		}
		t.Errorf("Parse(%q): %v is none of the errors of Parse", s, err)
	})
}

// checkName checks the invariants of every Name.
func checkName(t *testing.T, n dnsname.Name) {
	t.Helper()
	if again, err := dnsname.Parse(n.String()); err != nil || again != n {
		t.Errorf("Parse(%q) = %v, %v, want the same name", n.String(), again, err)
	}
	wire := n.AppendWire(nil)
	if len(wire) > dnsname.MaxWire || len(wire) != n.WireLen() {
		t.Errorf("%v has %d octets, WireLen() = %d, want at most %d", n, len(wire), n.WireLen(), dnsname.MaxWire)
	}
	for _, in := range [][]byte{wire, upper(wire)} {
		again, taken, err := dnsname.FromWire(append(in, "rest"...))
		if err != nil || again != n || taken != len(wire) {
			t.Errorf("FromWire(%q) = %v, %d, %v, want %v, %d", in, again, taken, err, n, len(wire))
		}
	}
	count := 0
	for up := n; !up.IsRoot(); up = up.Parent() {
		if l := len(up.Label()); l == 0 || l > dnsname.MaxLabel {
			t.Errorf("%v.Label() has %d octets, want 1 to %d", up, l, dnsname.MaxLabel)
		}
		if again, err := up.Parent().Child(up.Label()); err != nil || again != up {
			t.Errorf("%v.Child(%q) = %v, %v, want %v", up.Parent(), up.Label(), again, err, up)
		}
		if !n.IsSubdomainOf(up) || up.Compare(up.Parent()) <= 0 {
			t.Errorf("%v is not below %v and behind its parent", n, up)
		}
		count++
	}
	if got := n.Labels(); got != count {
		t.Errorf("%v.Labels() = %d, want %d", n, got, count)
	}
}

// upper returns wire with its ASCII letters in upper case.
func upper(wire []byte) []byte {
	up := slices.Clone(wire)
	for i, c := range up {
		if 'a' <= c && c <= 'z' {
			up[i] -= 'a' - 'A'
		}
	}
	return up
}
