package resolvconf

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
)

// Limits of Parse, in octets.
const (
	// MaxSize bounds the file: lines that do not end within it are ignored.
	MaxSize = 64 << 10
	// MaxLine bounds one line without its trailing blanks; a longer line is
	// ignored, unless it is a comment. It also bounds all options together,
	// written as one line.
	MaxLine = 4096

	// maxNameservers bounds the nameserver lines as written, because Parse must
	// be able to read all that AppendTo writes: it leaves room for a search
	// line and an options line with their newlines. An address can grow when
	// written: 1::3:4:5:6:7:8 becomes 1:0:3:4:5:6:7:8.
	maxNameservers = MaxSize - 2*(MaxLine+1)

	// maxText bounds a Problem's Text.
	maxText = 128
)

// Errors that a Problem wraps.
var (
	ErrAddress  = errors.New("not an IP address")
	ErrSearch   = errors.New("no domain name")
	ErrOption   = errors.New("option without a name")
	ErrIndented = errors.New("keyword not in the first column")
	ErrControl  = errors.New("control character")
	ErrLongLine = fmt.Errorf("line longer than %d octets", MaxLine)
	ErrTooLarge = fmt.Errorf("more than %d octets", MaxSize)
)

// Problem is a line that Parse could not use, entirely or in part.
type Problem struct { //nolint:errname // it does not make Parse fail
	Line int // from 1
	// Text is the line without its trailing blanks, at most 128 octets.
	Text string
	// Err is the reason; it wraps one of this package's errors.
	Err error
}

// Error returns the line's number and the reason in one line. It does not
// repeat Text.
func (p Problem) Error() string { return fmt.Sprintf("line %d: %v", p.Line, p.Err) }

// Unwrap returns the reason.
func (p Problem) Unwrap() error { return p.Err }

// Parse reads a resolv.conf. An invalid line becomes one Problem, in order of
// lines, and does not affect other lines; the valid options of an options line
// count. Parse fails only if r does and then returns r's error and no Config,
// because half a file would name other servers than the whole.
//
// Each nameserver line adds a server. The last search or domain line that names
// a domain replaces those before it. Options lines add up, and a later option
// replaces an earlier one of the same name, in its place. Comments, blank lines
// and other keywords are ignored. Lines end in LF or CRLF.
//
// Parse reads at most MaxSize+1 octets. Of a larger file, the lines that end
// within MaxSize count, and the rest is one Problem that wraps ErrTooLarge. A
// line longer than MaxLine is ignored entirely, because a truncated line could
// name another server.
func Parse(r io.Reader) (Config, []Problem, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxSize+1))
	if err != nil {
		return Config{}, nil, err
	}
	end := len(data)
	if end > MaxSize {
		end = bytes.LastIndexByte(data[:MaxSize], '\n') + 1
	}
	p := parser{optionAt: make(map[string]int)}
	var problems []Problem
	number := 0
	for line := range strings.Lines(string(data[:end])) {
		number++
		line = trimEnd(line)
		if err := p.line(line); err != nil {
			problems = append(problems, Problem{Line: number, Text: clip(line), Err: err})
		}
	}
	if end < len(data) {
		line, _, _ := strings.Cut(string(data[end:]), "\n")
		problems = append(problems, Problem{Line: number + 1, Text: clip(trimEnd(line)), Err: ErrTooLarge})
	}
	return p.config, problems, nil
}

// trimEnd removes trailing blanks and the line end.
func trimEnd(line string) string { return strings.TrimRight(line, " \t\r\n") }

// clip returns the beginning of a line, as shown in a Problem.
func clip(line string) string { return line[:min(len(line), maxText)] }

// parser holds the Config so far and the size of its written form.
type parser struct {
	config   Config
	optionAt map[string]int // index of each option by name
	// nameservers and options are the sizes of their lines so far, in octets:
	// of all nameserver lines with newlines, of the options line without
	// keyword and newline.
	nameservers, options int
}

// line parses one line without its line end.
func (p *parser) line(line string) error {
	if line == "" || line[0] == '#' || line[0] == ';' {
		return nil
	}
	if len(line) > MaxLine {
		return ErrLongLine
	}
	words := strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '\t' })
	take := p.keyword(words[0])
	switch {
	case take == nil:
		return nil
	case line[0] == ' ' || line[0] == '\t':
		return fmt.Errorf("%s: %w", words[0], ErrIndented)
	case strings.ContainsFunc(line, func(r rune) bool { return r != '\t' && isControl(r) }):
		return fmt.Errorf("%s: %w", words[0], ErrControl)
	}
	return take(words[1:])
}

// keyword returns the parser for the words that follow a keyword, or nil for a
// keyword to ignore.
func (p *parser) keyword(keyword string) func(words []string) error {
	switch keyword {
	case "nameserver":
		return p.takeNameserver
	case "search":
		return p.parseSearch
	case "domain":
		return p.parseDomain
	case "options":
		return p.parseOptions
	}
	return nil
}

func (p *parser) takeNameserver(words []string) error {
	if len(words) == 0 {
		return fmt.Errorf("nameserver: %w", ErrAddress)
	}
	addr, err := netip.ParseAddr(words[0])
	if err != nil {
		return fmt.Errorf("nameserver %.64q: %w", words[0], ErrAddress)
	}
	line := len("nameserver ") + len(addr.String())
	if line > MaxLine {
		return fmt.Errorf("nameserver %.64q: %w", words[0], ErrLongLine)
	}
	if p.nameservers+line+1 > maxNameservers {
		return fmt.Errorf("nameserver %.64q: all nameservers: %w", words[0], ErrTooLarge)
	}
	p.nameservers += line + 1
	p.config.Nameservers = append(p.config.Nameservers, addr)
	return nil
}

// parseSearch leaves the list unchanged if there is no name, as glibc does
// (musl empties it).
func (p *parser) parseSearch(words []string) error {
	if len(words) == 0 {
		return fmt.Errorf("search: %w", ErrSearch)
	}
	p.config.Searches = words
	return nil
}

// parseDomain is parseSearch for one name.
func (p *parser) parseDomain(words []string) error {
	if len(words) == 0 {
		return fmt.Errorf("domain: %w", ErrSearch)
	}
	p.config.Searches = words[:1:1]
	return nil
}

// parseOptions adds the valid options and returns the error of the first
// invalid one.
func (p *parser) parseOptions(words []string) error {
	var first error
	for _, word := range words {
		if err := p.takeOption(word); err != nil && first == nil {
			first = fmt.Errorf("option %.64q: %w", word, err)
		}
	}
	return first
}

func (p *parser) takeOption(word string) error {
	name, value, _ := strings.Cut(word, ":")
	if name == "" {
		return ErrOption
	}
	option := Option{Name: name, Value: value}
	at, present := p.optionAt[name]
	octets := p.options + len(" ") + option.octets()
	if present {
		octets -= len(" ") + p.config.Options[at].octets()
	}
	if len("options")+octets > MaxLine {
		return fmt.Errorf("all options: %w", ErrLongLine)
	}
	p.options = octets
	if present {
		p.config.Options[at] = option
		return nil
	}
	p.optionAt[name] = len(p.config.Options)
	p.config.Options = append(p.config.Options, option)
	return nil
}
