// Package scenario reads scenario files: txtar archives with manifests, queries and the
// expected responses. It is used by tests only. Each source of the model is tested with the
// same files.
//
// The archive's comment says what is shown, and has lines "key: values":
//
//	cites: ID ...      the statements of docs/spec-coverage.md that it proves
//	loaded: Kind ...   the kinds that are loaded (all, when the line is absent)
//	recalled: Kind ... the kinds that are known from a snapshot only
//	confirming: Kind ...  likewise, while the API is about to tell what there is
//
// Its files are config.yaml (optional), manifests below manifests/, upstream
// (optional, see Upstream), and expect:
//
//	> NAME TYPE [+OPTION ...]
//	RCODE [FLAG ...]          or: dropped
//	NAME TTL TYPE DATA        a record of the answer section, in any order
//	authority NAME TTL TYPE DATA
//	additional NAME TTL TYPE DATA
//	soa ZONE                  the authority section is the SOA of that zone
//	soa ZONE TTL              likewise, and denials live so long
//	opt                       the packet, given in octets, has an OPT record
//	ede CODE TEXT             an Extended DNS Error; without a line: none
//	option NAME HEX           an EDNS option of the response; * is any value
//	size N                    the response has at most N octets
//	length N                  the response has N octets
//	records N                 the answer section has N records, not listed here
//	additionals N             the additional section likewise
//	rotates                   asked again, it begins with another record
//	first DATA                the first record of the answer section
//
// Queries carry an OPT record with a size of 1232 octets and go over UDP; the
// options change that: noedns, bufsize=N, tcp, tls, rd, cd, class=CH, edns=N
// (version), ad, nsid, keepalive, padding, cookie=HEX, ecs=HEX, search=PATH,...
// (search paths), searchof=NAMESPACE,ZONE (likewise, in short), searchhex=HEX (an
// option in their place), marks, ixfr=N (the serial that the client has), and
// packet=HEX, which sends these octets instead.
package scenario

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/tools/txtar"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/autopath"
	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/respond"
)

// Scenario is a scenario file.
type Scenario struct {
	Cites     []string
	Loaded    []cluster.Kind // nil: all
	Freshness map[cluster.Kind]cluster.Freshness
	Config    []byte // of config.yaml, or nil
	// Manifests are files by path.
	Manifests map[string][]byte
	Upstream  UpstreamAnswers
	Cases     []Case
}

// Case is a query and the expected response.
type Case struct {
	Line   string // the query as written in the file
	Packet []byte
	Client respond.Client

	want                 []string
	dropped              bool
	edns                 bool // the query has an OPT record, and so has the response
	size, length         int  // 0: any
	records, additionals int  // -1: listed
	rotation             bool
	first                string
}

const manifestDir = "manifests/"

// Parse reads a scenario file.
func Parse(data []byte) (*Scenario, error) {
	a := txtar.Parse(data)
	s := &Scenario{Manifests: make(map[string][]byte), Freshness: make(map[cluster.Kind]cluster.Freshness)}
	if err := s.header(string(a.Comment)); err != nil {
		return nil, err
	}
	for _, f := range a.Files {
		switch {
		case f.Name == "config.yaml":
			s.Config = f.Data
		case f.Name == "expect":
			if err := s.expect(f.Data); err != nil {
				return nil, err
			}
		case f.Name == "upstream":
			var err error
			if s.Upstream, err = parseUpstream(f.Data); err != nil {
				return nil, err
			}
		case strings.HasPrefix(f.Name, manifestDir):
			s.Manifests[strings.TrimPrefix(f.Name, manifestDir)] = f.Data
		default:
			return nil, fmt.Errorf("file %s: not config.yaml, upstream, expect or below %s", f.Name, manifestDir)
		}
	}
	if len(s.Cases) == 0 {
		return nil, errors.New("no query")
	}
	return s, nil
}

func (s *Scenario) header(comment string) error {
	for line := range strings.Lines(comment) {
		key, values, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok {
			continue
		}
		switch key {
		case "cites":
			s.Cites = append(s.Cites, strings.Fields(values)...)
		case "loaded", "recalled", "confirming":
			kinds, err := parseKinds(values)
			if err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
			if key == "loaded" {
				s.Loaded = kinds
			}
			for _, k := range kinds {
				switch key {
				case "recalled":
					s.Freshness[k] = cluster.Recalled
				case "confirming":
					s.Freshness[k] = cluster.Confirming
				}
			}
		}
	}
	return nil
}

// parseKinds reads kinds, or the word nothing.
func parseKinds(values string) ([]cluster.Kind, error) {
	kinds := []cluster.Kind{}
	for v := range strings.FieldsSeq(values) {
		i := slices.IndexFunc(cluster.Kinds(), func(k cluster.Kind) bool { return k.String() == v })
		switch {
		case i >= 0:
			kinds = append(kinds, cluster.Kinds()[i])
		case v != "nothing":
			return nil, fmt.Errorf("unknown kind %s", v)
		}
	}
	return kinds, nil
}

func (s *Scenario) expect(data []byte) error {
	scanner := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; scanner.Scan(); n++ {
		line := strings.TrimSpace(scanner.Text())
		var err error
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "> "):
			err = s.addQuery(line[2:])
		case len(s.Cases) == 0:
			err = errors.New("no question before it")
		default:
			err = s.Cases[len(s.Cases)-1].addWant(line)
		}
		if err != nil {
			return fmt.Errorf("expect:%d: %q: %w", n, line, err)
		}
	}
	return scanner.Err()
}

// addQuery parses a query.
func (s *Scenario) addQuery(line string) error {
	q := Case{Line: line, records: -1, additionals: -1}
	fields := strings.Fields(line)
	if len(fields) < 2 {
		return errors.New("not NAME TYPE [+OPTION ...]")
	}
	held := ""
	question := dnswire.QuerySpec{
		Name:    fields[0],
		UDPSize: respond.DefaultUDPSize,
		Options: make(map[dnswire.OptionCode][]byte),
	}
	var err error
	if question.Type, err = dnswire.ParseType(fields[1]); err != nil {
		return err
	}
	for _, f := range fields[2:] {
		if serial, ok := strings.CutPrefix(f, "+ixfr="); ok {
			held = serial
			continue
		}
		if err := q.option(&question, f); err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
	}
	q.edns = q.edns || question.UDPSize > 0
	if q.Packet == nil {
		if q.Packet, err = dnswire.NewQuery(question); err != nil {
			return err
		}
	}
	if held != "" {
		if q.Packet, err = withHeld(q.Packet, held); err != nil {
			return err
		}
	}
	s.Cases = append(s.Cases, q)
	return nil
}

func (q *Case) option(question *dnswire.QuerySpec, option string) (err error) {
	name, value, _ := strings.Cut(strings.TrimPrefix(option, "+"), "=")
	switch name {
	case "noedns":
		question.UDPSize = 0
	case "bufsize":
		var n uint64
		n, err = strconv.ParseUint(value, 10, 16)
		question.UDPSize = uint16(n)
	case "edns":
		var n uint64
		n, err = strconv.ParseUint(value, 10, 8)
		question.Version = uint8(n)
	case "tcp":
		q.Client.Transport = respond.TCP
	case "tls":
		q.Client.Transport = respond.TLS
	case "ad":
		question.Flags |= dnswire.FlagAD
	case "rd":
		question.Flags |= dnswire.FlagRD
	case "cd":
		question.Flags |= dnswire.FlagCD
	case "class":
		if value != "CH" {
			return errors.New("unknown class")
		}
		question.Class = dnswire.ClassCHAOS
	case "nsid":
		question.Options[dnswire.OptionNSID] = nil
	case "keepalive":
		question.Options[dnswire.OptionKeepalive] = nil
	case "marks":
		question.Options[dnswire.OptionMetadata] = nil
	case "padding":
		question.Options[dnswire.OptionPadding] = nil
	case "cookie":
		question.Options[dnswire.OptionCookie], err = hex.DecodeString(value)
	case "ecs":
		question.Options[dnswire.OptionSubnet], err = hex.DecodeString(value)
	case "search":
		question.Options[autopath.DefaultOption] = []byte(value)
	case "searchof":
		question.Options[autopath.DefaultOption] = []byte("\x01" + value)
	case "searchhex":
		question.Options[autopath.DefaultOption], err = hex.DecodeString(value)
	case "packet":
		question.UDPSize = 0
		q.Packet, err = hex.DecodeString(value)
	default:
		return errors.New("unknown option")
	}
	return err
}

// addWant parses a line of the expected response.
func (q *Case) addWant(line string) error {
	key, rest, _ := strings.Cut(line, " ")
	var err error
	switch key {
	case "dropped":
		q.dropped = true
	case "opt":
		q.edns = true
	case "size":
		q.size, err = strconv.Atoi(rest)
	case "records":
		q.records, err = strconv.Atoi(rest)
	case "length":
		q.length, err = strconv.Atoi(rest)
	case "additionals":
		q.additionals, err = strconv.Atoi(rest)
	case "first":
		q.first = rest
	case "rotates":
		q.rotation = true
	default:
		q.want = append(q.want, strings.Join(strings.Fields(line), " "))
	}
	return err
}

// Responder returns the response to a packet of a client, or nil if it sends none.
type Responder func(packet []byte, client respond.Client) []byte

// Check sends every query and returns the differences from the expected responses.
func (s *Scenario) Check(ask Responder) (wrong []error) {
	for i := range s.Cases {
		q := &s.Cases[i]
		if err := q.check(ask); err != nil {
			wrong = append(wrong, fmt.Errorf("> %s\n%w", q.Line, err))
		}
	}
	return wrong
}

func (q *Case) check(ask Responder) error {
	wire := ask(q.Packet, q.Client)
	if (wire == nil) != q.dropped {
		return fmt.Errorf("dropped: got %v, want %v", wire == nil, q.dropped)
	}
	if q.dropped {
		return nil
	}
	if q.size > 0 && len(wire) > q.size || q.length > 0 && len(wire) != q.length {
		return fmt.Errorf("size: got %d, want at most %d, or %d", len(wire), q.size, q.length)
	}
	m, err := dnswire.ParseMessage(wire)
	if err != nil {
		return err
	}
	if m.EDNS != q.edns {
		return fmt.Errorf("OPT record: got %v, want %v as in the query", m.EDNS, q.edns)
	}
	if q.records >= 0 && len(m.Answer) != q.records {
		return fmt.Errorf("records: got %d, want %d", len(m.Answer), q.records)
	}
	if q.additionals >= 0 && len(m.Additional) != q.additionals {
		return fmt.Errorf("additionals: got %d, want %d", len(m.Additional), q.additionals)
	}
	if q.first != "" && (len(m.Answer) == 0 || m.Answer[0].Data != q.first) {
		return fmt.Errorf("first: got %v, want %s", m.Answer, q.first)
	}
	if err := q.compare(m); err != nil {
		return err
	}
	if q.rotation {
		return q.checkRotation(ask, m)
	}
	return nil
}

func (q *Case) checkRotation(ask Responder, first *dnswire.Message) error {
	second, err := dnswire.ParseMessage(ask(q.Packet, q.Client))
	if err != nil {
		return err
	}
	if len(first.Answer) < 2 || first.Answer[0] == second.Answer[0] {
		return fmt.Errorf("rotates: both answers begin with %v", first.Answer[:min(1, len(first.Answer))])
	}
	return nil
}

// compare compares the lines of the response with the expected ones in any order, except
// for the first line.
func (q *Case) compare(m *dnswire.Message) error {
	got := q.got(m)
	want := slices.Clone(q.want)
	if len(want) > 0 {
		slices.Sort(want[1:])
	}
	slices.Sort(got[1:])
	if !slices.Equal(got, want) {
		return fmt.Errorf("got:\n\t%s\nwant:\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
	return nil
}

// soa is an SOA record as the file speaks of it: with the TTL of denials (RFC
// 2308, section 5), or without.
func (q *Case) soa(r dnswire.Record) string {
	minimum := r.Data[strings.LastIndex(r.Data, " ")+1:]
	with := fmt.Sprintf("soa %s %s", r.Name, minimum)
	if minimum == strconv.FormatUint(uint64(r.TTL), 10) && slices.Contains(q.want, with) {
		return with
	}
	return "soa " + r.Name
}

// got returns a response as lines of a scenario file.
func (q *Case) got(m *dnswire.Message) []string {
	status := []string{m.Status}
	for _, f := range m.Flags {
		if f != "qr" {
			status = append(status, f)
		}
	}
	lines := []string{strings.Join(status, " ")}
	record := func(section string, r dnswire.Record) {
		lines = append(lines, fmt.Sprintf("%s%s %d %s %s", section, r.Name, r.TTL, r.Type, r.Data))
	}
	if q.records < 0 {
		for _, r := range m.Answer {
			record("", r)
		}
	}
	for _, r := range m.Authority {
		if r.Type == "SOA" && slices.ContainsFunc(q.want, func(w string) bool { return strings.HasPrefix(w, "soa ") }) {
			lines = append(lines, q.soa(r))
			continue
		}
		record("authority ", r)
	}
	if q.additionals < 0 {
		for _, r := range m.Additional {
			record("additional ", r)
		}
	}
	for _, e := range m.Errors {
		lines = append(lines, fmt.Sprintf("ede %d %s", e.Code, e.Text))
	}
	for code, value := range m.Options {
		if slices.Contains(q.want, fmt.Sprintf("option %s *", code)) {
			value = "*"
		}
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("option %s %s", code, value)))
	}
	return lines
}
