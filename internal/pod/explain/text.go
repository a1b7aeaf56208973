package explain

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"portolan.dev/portolan/internal/dns/dnswire"
)

// Style is how an Explanation is printed.
type Style struct {
	// Width is the width of the terminal in columns; 0 does not break lines.
	Width int
	// Color uses colors (ECMA-48, SGR).
	Color bool
}

const (
	bold  = "1"
	faint = "2"
	red   = "31"
	green = "32"
	amber = "33"
)

// Plain returns text without the control and format characters (Unicode categories Cc and
// Cf) that could drive a terminal.
func Plain(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Cc, unicode.Cf) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// WritePlain prints lines, as Plain returns them.
func WritePlain(w io.Writer, text string) error {
	for line := range strings.Lines(text) {
		if _, err := fmt.Fprintln(w, Plain(strings.TrimSuffix(line, "\n"))); err != nil {
			return err
		}
	}
	return nil
}

func (s Style) mark(code, text string) string {
	if !s.Color || code == "" || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// page collects the lines to print.
type page struct {
	Style
	strings.Builder
	servers bool // print the server of each query: there are several, or another one was asked instead
}

// line prints a line. If it is longer than the width it is broken, and the following
// lines are indented by two more columns.
func (p *page) line(indent int, code, text string) {
	at, first := 0, true
	flush := func(words []string) {
		pad := indent
		if !first {
			pad += 2
		}
		p.WriteString(strings.Repeat(" ", pad) + p.mark(code, strings.Join(words, " ")) + "\n")
		first, at = false, 0
	}
	var words []string
	for word := range strings.FieldsSeq(text) {
		word = Plain(word)
		if at += len([]rune(word)) + 1; p.Width > 0 && len(words) > 0 && indent+2+at > p.Width {
			flush(words)
			words, at = nil, len([]rune(word))+1
		}
		words = append(words, word)
	}
	flush(words)
}

// WriteText prints the explanation as text.
func (e *Explanation) WriteText(w io.Writer, style Style) error {
	if err := e.WriteDetails(w, style); err != nil {
		return err
	}
	p := &page{Style: style}
	for _, d := range e.Diagnoses {
		p.line(2, "", "why:  "+d.Why)
		p.line(2, "", "cure: "+d.Cure)
	}
	_, err := io.WriteString(w, p.String())
	return err
}

// WriteDetails prints the lookup and its outcome, without the causes.
func (e *Explanation) WriteDetails(w io.Writer, style Style) error {
	p := &page{Style: style, servers: strings.Count(e.ResolvConf, "nameserver ") > 1 || e.askedAnother()}
	p.line(0, bold,
		fmt.Sprintf("%s (%s) in %s, resolved by %s", e.Name, strings.Join(e.Types, " and "), e.Pod, e.Resolver))
	for line := range strings.Lines(e.ResolvConf) {
		p.line(2, faint, line)
	}
	if e.Unknown != "" {
		p.line(2, faint, "note: "+e.Unknown)
	}
	for _, warning := range e.Warnings {
		p.line(2, amber, "warning: "+warning)
	}
	if len(e.Candidates) > 0 {
		p.WriteString("\n")
	}
	for i := range e.Candidates {
		p.candidate(i+1, &e.Candidates[i])
	}
	p.WriteString("\n")
	code := red
	if e.Found() {
		code = green
	}
	p.line(0, code, e.Summary())
	_, err := io.WriteString(w, p.String())
	return err
}

// askedAnother reports whether a query was sent to a server that the resolv.conf does not have.
func (e *Explanation) askedAnother() bool {
	return slices.ContainsFunc(e.Candidates, func(c Candidate) bool {
		return slices.ContainsFunc(c.Exchanges, Exchange.instead)
	})
}

// Summary returns the outcome in a line.
func (e *Explanation) Summary() string {
	end := e.Why
	if e.Found() && len(e.Records) > 0 {
		end = data(e.Records)
	}
	return fmt.Sprintf("%s, after %s: %s", e.Outcome, packets(e.Packets), end)
}

// candidate prints a candidate. Consecutive queries with the same result share a line.
func (p *page) candidate(n int, t *Candidate) {
	p.line(0, "", fmt.Sprintf("%2d. %s", n, t.Name))
	p.line(4, faint, t.Why)
	if t.Skipped != "" {
		p.line(4, amber, "skipped: "+t.Skipped)
	}
	for rest := t.Exchanges; len(rest) > 0; {
		same := 1
		for same < len(rest) && alike(&rest[0], &rest[same]) {
			same++
		}
		p.queries(rest[:same])
		rest = rest[same:]
	}
	if t.Stopped != "" {
		p.line(4, amber, t.Stopped)
	}
}

// alike reports whether two queries differ only in their type and time.
func alike(a, b *Exchange) bool {
	return a.Server == b.Server && a.TCP == b.TCP && a.Result == b.Result && a.Note == b.Note && len(a.Records) == 0 &&
		len(b.Records) == 0
}

// queries prints queries that are alike in one line.
func (p *page) queries(all []Exchange) {
	q := &all[0]
	text, code := q.Result, red
	if len(q.Records) > 0 {
		text, code = data(q.Records), green
	}
	if q.Note != "" {
		text += " (" + q.Note + ")"
	}
	var types []string
	for i := range all {
		if !slices.Contains(types, all[i].Type) {
			types = append(types, all[i].Type)
		}
	}
	if times := len(all) / len(types); times > 1 {
		text += fmt.Sprintf(", %d times", times)
	}
	head := strings.Join(types, ", ")
	if p.servers {
		head += " at " + q.Server
	}
	if q.TCP {
		head += " over TCP"
	}
	p.line(4, code, head+": "+text)
}

// mostData is the maximum number of records that a line lists.
const mostData = 4

// data lists the data of records.
func data(records []dnswire.Record) string {
	var words []string
	for _, r := range records[:min(len(records), mostData)] {
		if r.Type == "CNAME" {
			words = append(words, "alias of "+r.Data)
			continue
		}
		words = append(words, r.Data)
	}
	text := strings.Join(words, ", ")
	if more := len(records) - mostData; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
