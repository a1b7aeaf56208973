package request

import (
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"portolan.dev/portolan/internal/pod/explain"
)

// mostRules and mostEndpoints are the maximum numbers of rules and of endpoints that the text lists. Of more
// rules it lists the nearest ones.
const (
	mostRules     = 12
	mostEndpoints = 8
)

// WriteText prints the explanation as text.
func (e *Explanation) WriteText(w io.Writer, style explain.Style) error {
	if e.DNS != nil && !e.DNS.NotKnown() {
		if err := e.DNS.WriteText(w, style); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
	}
	if err := e.WriteDetails(w); err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s\n", e.Outcome)
	for _, d := range e.Diagnoses {
		fmt.Fprintf(&b, "  why:  %s\n  cure: %s\n", d.Why, d.Cure)
	}
	return explain.WritePlain(w, b.String())
}

// WriteDetails prints what the gateway does with the request, without its outcome.
func (e *Explanation) WriteDetails(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n", e.Method, e.URL)
	for _, f := range e.Fields {
		fmt.Fprintf(&b, "  %s\n", f)
	}
	if e.Note != "" {
		fmt.Fprintf(&b, "  note: %s\n", e.Note)
	}
	for i := range e.Answers {
		e.Answers[i].write(&b)
	}
	return explain.WritePlain(w, b.String())
}

func (a *Answer) write(b *strings.Builder) {
	at := "port " + strconv.Itoa(int(a.Port))
	if a.Address != "" {
		at = net.JoinHostPort(a.Address, strconv.Itoa(int(a.Port)))
	}
	switch {
	case a.Listener == ingresses:
		fmt.Fprintf(b, "\n%s: Ingresses\n", at)
	case a.Listener == "":
		fmt.Fprintf(b, "\n%s: no listener has the host\n", at)
	case a.Hostname == "":
		fmt.Fprintf(b, "\n%s: %s\n", at, a.Listener)
	default:
		fmt.Fprintf(b, "\n%s: %s, hostname %s\n", at, a.Listener, a.Hostname)
	}
	if a.TLS != nil {
		a.TLS.write(b)
	}
	a.writeRules(b)
	for _, d := range a.Demands {
		fmt.Fprintf(b, "  demands %s\n", d)
	}
	for _, c := range a.Changes {
		fmt.Fprintf(b, "  %s\n", c)
	}
	for i := range a.Backends {
		a.Backends[i].write(b)
	}
}

// writeRules lists the rules, those that miss most widely left out if there are many.
func (a *Answer) writeRules(b *strings.Builder) {
	if len(a.Rules) == 0 {
		return
	}
	host := a.Host
	if host == "" {
		host = "any host"
	}
	fmt.Fprintf(b, "rules for %s, in the order in which they are tried:\n", host)
	width := missesPath
	if len(a.Rules) > mostRules {
		width = missesSpelling
	}
	listed := 0
	for i, r := range a.Rules {
		if r.WhyNot != "" && (r.nearness > width || listed >= mostRules) {
			continue
		}
		listed++
		text := r.WhyNot
		if text == "" {
			text = "takes the request"
		}
		fmt.Fprintf(b, "%4d. %s, %s: %s\n", i+1, r.Name, r.Match, text)
	}
	if more := len(a.Rules) - listed; more > 0 {
		fmt.Fprintf(b, "      and %d more that do not match\n", more)
	}
}

func (s *Backend) write(b *strings.Builder) {
	name := "invalid backend"
	if s.Service != "" {
		name = fmt.Sprintf("Service %s, port %d", s.Service, s.Port)
	}
	fmt.Fprintf(b, "%s", name)
	if s.Share != 100 {
		fmt.Fprintf(b, ", %s of the requests", percent(s.Share))
	}
	if s.Status != 0 {
		fmt.Fprintf(b, ": %d, %s", s.Status, s.Reason)
	}
	b.WriteString("\n")
	for _, e := range s.Endpoints[:min(len(s.Endpoints), mostEndpoints)] {
		fmt.Fprintf(b, "  %s", e.Address)
		if e.Pod != "" {
			fmt.Fprintf(b, " (Pod %s)", e.Pod)
		}
		b.WriteString("\n")
	}
	if more := len(s.Endpoints) - mostEndpoints; more > 0 {
		fmt.Fprintf(b, "  and %d more endpoints\n", more)
	}
}

// percent returns a share of requests, as in "12.5 %".
func percent(share float64) string { return strconv.FormatFloat(share, 'g', 3, 64) + " %" }

// own says what the gateway does of its own accord instead of a status: it answers or, of a stream, ends it.
func (a *Answer) own(status int) string {
	if a.Stream {
		return "closed by the gateway"
	}
	return fmt.Sprintf("%d from the gateway", status)
}

// outcome says in words what the client gets.
func (a *Answer) outcome() string {
	switch {
	case a.refused():
		return a.TLS.outcome()
	case a.Location != "":
		return fmt.Sprintf("%d from the gateway: redirect to %s", a.Status, a.Location)
	case a.Status != 0:
		return a.own(a.Status) + ": " + a.Reason
	case len(a.Backends) == 0:
		return "no answer: " + a.Reason
	}
	var good, bad []string
	for i := range a.Backends {
		s := &a.Backends[i]
		if s.Weight == 0 {
			continue
		}
		name, share := fmt.Sprintf("Service %s, port %d", s.Service, s.Port), ""
		if s.Share != 100 {
			share = " (" + percent(s.Share) + ")"
		}
		if s.Status == 0 {
			good = append(good, name+share)
			continue
		}
		if text := a.own(s.Status) + share + ": " + s.Reason; !slices.Contains(bad, text) {
			bad = append(bad, text)
		}
	}
	text := strings.Join(bad, "; ")
	if len(good) > 0 {
		served := "served by " + and(good)
		if text == "" {
			return served
		}
		text = served + "; " + text
	}
	return text
}

func (t *TLS) write(b *strings.Builder) {
	switch {
	case t.Refused != "":
		fmt.Fprintf(b, "  TLS: %s\n", t.Refused)
	case t.Passed:
		b.WriteString("  TLS: the endpoint answers the handshake\n")
	case len(t.Names) > 0:
		fmt.Fprintf(b, "  TLS: a certificate for %s, until %s\n", few(t.Names), t.Until.UTC().Format(time.DateOnly))
	}
	if t.Demand != "" {
		fmt.Fprintf(b, "  TLS: the client needs %s\n", t.Demand)
	}
}
