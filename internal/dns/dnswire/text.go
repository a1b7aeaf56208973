package dnswire

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/miekg/dns"

	"portolan.dev/portolan/internal/dns/dnsname"
)

// ParseType parses a type's mnemonic, in any case, or TYPE and a number.
func ParseType(s string) (Type, error) {
	upper := strings.ToUpper(s)
	if t, ok := dns.StringToType[upper]; ok {
		return Type(t), nil
	}
	if number, ok := strings.CutPrefix(upper, "TYPE"); ok {
		if n, err := strconv.ParseUint(number, 10, 16); err == nil {
			return Type(n), nil
		}
	}
	return 0, fmt.Errorf("unknown type %q", s)
}

// ParseRCode parses a response code's mnemonic, in any case.
func ParseRCode(s string) (RCode, error) {
	if strings.EqualFold(s, BadVers.String()) {
		return BadVers, nil
	}
	if n, ok := dns.StringToRcode[strings.ToUpper(s)]; ok {
		return RCode(n), nil
	}
	return 0, fmt.Errorf("unknown response code %q; use one such as NXDOMAIN or SERVFAIL", s)
}

// Record is one record in presentation form.
type Record struct {
	Name string `json:"name"`
	TTL  uint32 `json:"ttl"`
	Type string `json:"type"`
	Data string `json:"data"`
}

// String returns the record as a line of a master file (RFC 1035, section 5.1).
func (r Record) String() string {
	return fmt.Sprintf("%s\t%d\tIN\t%s\t%s", r.Name, r.TTL, r.Type, r.Data)
}

// Records returns the records of the set in presentation form, owned by name.
func (s RRset) Records(name dnsname.Name) ([]Record, error) {
	wire := name.AppendWire(nil)
	var records []Record
	for _, rdata := range s.RData() {
		one := NewRRset(s.Type, s.TTL(), rdata).wire[2:] // without the owner
		rr, _, err := dns.UnpackRR(append(slices.Clip(wire), one...), 0)
		if err != nil {
			return nil, fmt.Errorf("record of %s: %w", name, err)
		}
		records = append(records, recordOf(rr))
	}
	return records, nil
}

// Record returns the SOA record in presentation form.
func (s *SOA) Record() Record {
	return Record{s.Zone.String(), s.TTL, "SOA", fmt.Sprintf("%s %s %d %d %d %d %d",
		s.MName, s.RName, s.Serial, s.Refresh, s.Retry, s.Expire, s.Minimum)}
}

func recordOf(rr dns.RR) Record {
	h := rr.Header()
	data := strings.TrimPrefix(rr.String(), h.String())
	if u, ok := rr.(*dns.RFC3597); ok { // whose header the library prints differently
		data = strings.TrimSpace(fmt.Sprintf(`\# %d %s`, len(u.Rdata)/2, u.Rdata))
	}
	return Record{h.Name, h.Ttl, Type(h.Rrtype).String(), data}
}

// Message is a response in presentation form.
type Message struct {
	Name       string   `json:"name"`
	Type       string   `json:"type"`
	Status     string   `json:"status"`
	Code       RCode    `json:"-"` // of Status
	Flags      []string `json:"flags"`
	Answer     []Record `json:"answer"`
	Authority  []Record `json:"authority"`
	Additional []Record `json:"additional"`
	// Errors are the Extended DNS Errors.
	Errors []ExtendedError `json:"errors,omitempty"`
	// EDNS reports whether there is an OPT record.
	EDNS bool `json:"-"`
	// Options are the OPT record's other options, with values in hexadecimal.
	Options map[OptionCode]string `json:"-"`
}

// ExtendedError is an Extended DNS Error (RFC 8914).
type ExtendedError struct {
	Code uint16 `json:"code"`
	Text string `json:"text"`
}

// ParseMessage parses a response.
func ParseMessage(wire []byte) (*Message, error) {
	var m dns.Msg
	if err := m.Unpack(wire); err != nil {
		return nil, fmt.Errorf("response: %w", err)
	}
	t := &Message{Answer: []Record{}, Authority: []Record{}, Additional: []Record{}, Options: make(map[OptionCode]string)}
	if len(m.Question) == 1 {
		t.Name, t.Type = m.Question[0].Name, Type(m.Question[0].Qtype).String()
	}
	t.Flags = flagsOf(&m)
	for _, section := range []struct {
		from []dns.RR
		to   *[]Record
	}{{m.Answer, &t.Answer}, {m.Ns, &t.Authority}, {m.Extra, &t.Additional}} {
		for _, rr := range section.from {
			if opt, ok := rr.(*dns.OPT); ok {
				if err := t.addOPT(opt); err != nil {
					return nil, fmt.Errorf("response: %w", err)
				}
				continue
			}
			*section.to = append(*section.to, recordOf(rr))
		}
	}
	// Unpack has already combined the extended bits.
	t.Code = RCode(m.Rcode)
	t.Status = t.Code.String()
	return t, nil
}

func flagsOf(m *dns.Msg) []string {
	flags := []string{}
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"qr", m.Response}, {"aa", m.Authoritative}, {"tc", m.Truncated}, {"rd", m.RecursionDesired},
		{"ra", m.RecursionAvailable}, {"ad", m.AuthenticatedData}, {"cd", m.CheckingDisabled},
	} {
		if f.set {
			flags = append(flags, f.name)
		}
	}
	return flags
}

// addOPT adds the content of an OPT record. It parses the options from wire
// form, because the library prints each in its own way.
func (t *Message) addOPT(opt *dns.OPT) error {
	t.EDNS = true
	opt.Hdr.Name = "." // so that the part before the options has a fixed length
	wire := make([]byte, dns.Len(opt))
	end, err := dns.PackRR(opt, wire, 0, nil, false)
	if err != nil {
		return fmt.Errorf("EDNS options: %w", err)
	}
	for b := wire[optFixed:end]; len(b) > 0; {
		n := OptionLen(int(binary.BigEndian.Uint16(b[2:])))
		code, value := OptionCode(binary.BigEndian.Uint16(b)), b[OptionLen(0):n]
		if code == OptionEDE {
			t.Errors = append(t.Errors, ExtendedError{binary.BigEndian.Uint16(value), string(value[2:])})
		} else {
			t.Options[code] = hex.EncodeToString(value)
		}
		b = b[n:]
	}
	return nil
}

// String formats the message like dig, but shorter: status, sections, error.
func (t *Message) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, ";; status: %s, flags: %s\n", t.Status, strings.Join(t.Flags, " "))
	for _, section := range []struct {
		title   string
		records []Record
	}{{"answer", t.Answer}, {"authority", t.Authority}, {"additional", t.Additional}} {
		if len(section.records) == 0 {
			continue
		}
		fmt.Fprintf(&b, ";; %s\n", section.title)
		for _, r := range section.records {
			fmt.Fprintln(&b, r)
		}
	}
	for _, e := range t.Errors {
		fmt.Fprintf(&b, ";; error: %d (%s)\n", e.Code, e.Text)
	}
	return b.String()
}

// QuerySpec is the content of a query for NewQuery.
type QuerySpec struct {
	Name  string // in presentation form; its case is kept
	Type  Type
	Class Class // 0 means IN
	// UDPSize, if not 0, adds an OPT record with this size.
	UDPSize uint16
	Version uint8 // of EDNS
	// Options are the OPT record's options, in order of their codes.
	Options map[OptionCode][]byte
	Flags   uint16 // RD, CD, AD
}

// NewQuery returns a query in wire form.
func NewQuery(q QuerySpec) ([]byte, error) {
	m := new(dns.Msg)
	m.SetQuestion(dns.Fqdn(q.Name), uint16(q.Type))
	m.RecursionDesired = q.Flags&FlagRD != 0
	m.CheckingDisabled = q.Flags&FlagCD != 0
	m.AuthenticatedData = q.Flags&FlagAD != 0
	if q.Class != 0 {
		m.Question[0].Qclass = uint16(q.Class)
	}
	if q.UDPSize > 0 {
		m.SetEdns0(q.UDPSize, false)
		opt := m.IsEdns0()
		opt.SetVersion(q.Version)
		for _, code := range slices.Sorted(maps.Keys(q.Options)) {
			opt.Option = append(opt.Option, &dns.EDNS0_LOCAL{Code: uint16(code), Data: q.Options[code]})
		}
	}
	wire, err := m.Pack()
	if err != nil {
		return nil, fmt.Errorf("query for %s: %w", q.Name, err)
	}
	return wire, nil
}
