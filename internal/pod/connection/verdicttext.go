package connection

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/pod/explain"
)

// WriteVerdict prints what policies decide: the verdict, then why, then what would help.
func (e *Explanation) WriteVerdict(w io.Writer) error {
	var b strings.Builder
	what := e.From + " to " + e.Target
	switch {
	case e.Verdict == "":
		fmt.Fprintf(&b, "%s: %s\n", e.Outcome, what)
	case e.kernelDiffers():
		fmt.Fprintf(&b, "%s by policies, but the kernel differs: %s\n", e.Verdict, what)
	case e.Outcome == Refused: // by another address
		fmt.Fprintf(&b, "%s by policies, but %s: %s\n", e.Verdict, e.Outcome, what)
	default:
		fmt.Fprintf(&b, "%s: %s\n", e.Verdict, what)
	}
	for i := range e.Attempts {
		e.Attempts[i].writeRulings(&b)
	}
	if e.Note != "" {
		fmt.Fprintf(&b, "\nnote: %s\n", e.Note)
	}
	if cures := e.cures(); len(cures) > 0 {
		b.WriteString("\n")
		for _, cure := range cures {
			fmt.Fprintf(&b, "cure: %s\n", cure)
		}
	}
	return explain.WritePlain(w, b.String())
}

// IsAllowed reports whether policies allow the client every endpoint that it may get, no kernel that was read
// differs, and nothing else is known to prevent the connection.
func (e *Explanation) IsAllowed() bool {
	return !e.kernelDiffers() && e.modelAllows()
}

func (e *Explanation) modelAllows() bool {
	return e.Verdict == Allowed && (e.Outcome == Connected || e.Outcome == NotKnown) || e.Verdict == "" && e.Connects()
}

// cures returns what would help, each once, if there is no connection.
func (e *Explanation) cures() (cures []string) {
	seen := make(map[string]bool)
	add := func(text string) {
		if text != "" && !seen[text] {
			seen[text] = true
			cures = append(cures, text)
		}
	}
	for i := range e.Attempts {
		for _, u := range e.Attempts[i].Endpoints {
			for _, r := range []*Ruling{u.Egress, u.Ingress} {
				if r != nil {
					add(r.Cure)
				}
			}
		}
	}
	for _, d := range e.Diagnoses {
		if !e.IsAllowed() && !seen[d.Cure] {
			add(d.Cure + " (" + d.Why + ")")
		}
	}
	return cures
}

// writeRulings prints the endpoints of an attempt that were judged: those with the same rulings once.
func (a *Attempt) writeRulings(b *strings.Builder) {
	var order []string
	endpoints := make(map[string][]string)
	for i := range a.Endpoints {
		u := &a.Endpoints[i]
		if u.verdict() == "" {
			continue
		}
		text := u.rulings()
		if endpoints[text] == nil {
			order = append(order, text)
		}
		endpoints[text] = append(endpoints[text], u.name())
	}
	if len(order) == 0 {
		return
	}
	if a.Service != "" {
		fmt.Fprintf(b, "\n%s is %s address of Service %s\n", a.Address, withArticle(a.Kind), a.Service)
	} else {
		b.WriteString("\n")
	}
	for _, text := range order {
		names := endpoints[text]
		if more := len(names) - mostNamed; more > 0 {
			names = append(names[:mostNamed:mostNamed], fmt.Sprintf("%d more", more))
		}
		fmt.Fprintf(b, "%s: %s", strings.Join(names, ", "), text)
	}
}

// mostNamed is the maximum number of endpoints with the same rulings that are listed.
const mostNamed = 5

// name returns the endpoint with its Pod.
func (u *Use) name() string {
	switch {
	case u.Pod != "" && u.Node != "":
		return fmt.Sprintf("%s (Pod %s, node %s)", u.Address, u.Pod, u.Node)
	case u.Pod != "":
		return fmt.Sprintf("%s (Pod %s)", u.Address, u.Pod)
	}
	return u.Address
}

// rulings returns the verdict on an endpoint and those on both directions.
func (u *Use) rulings() string {
	var b strings.Builder
	b.WriteString(u.verdict() + "\n")
	if u.Egress != nil {
		u.Egress.write(&b, "egress of the client")
	}
	if u.Ingress != nil {
		u.Ingress.write(&b, "ingress of the Pod")
	}
	return b.String()
}

func (r *Ruling) write(b *strings.Builder, direction string) {
	verdict := Denied
	if r.Allowed {
		verdict = Allowed
	}
	if r.node != "" {
		direction, _, _ = strings.Cut(direction, " ")
		direction += " on node " + r.node
	}
	fmt.Fprintf(b, "  %s: %s: %s\n", direction, verdict, r.Why)
	if r.Nearest != nil {
		fmt.Fprintf(b, "    nearest: %s of %s: %s\n", r.Nearest.Rule, r.Nearest.Policy, r.Nearest.Mismatch)
	}
	for _, text := range r.Audit {
		fmt.Fprintf(b, "    audit: %s\n", text)
	}
	if k := r.Kernel; k != nil {
		b.WriteString("    kernel: " + k.Result)
		if k.Why != "" {
			b.WriteString(": " + k.Why)
		}
		b.WriteString("\n")
	}
}

// Denials returns why policies deny connections to endpoints, each reason once.
func (e *Explanation) Denials() (all []explain.Diagnosis) {
	for i := range e.Attempts {
		for j := range e.Attempts[i].Endpoints {
			for _, d := range e.Attempts[i].Endpoints[j].denials(e.From) {
				if !slices.ContainsFunc(all, func(o explain.Diagnosis) bool { return o.Cure == d.Cure }) {
					all = append(all, d)
				}
			}
		}
	}
	return all
}

// Allows returns what allows connections to the endpoints that policies were judged of, the first one; empty if none
// was.
func (e *Explanation) Allows() string {
	for i := range e.Attempts {
		for j := range e.Attempts[i].Endpoints {
			u, said := &e.Attempts[i].Endpoints[j], ""
			if u.Egress != nil {
				said = "egress: " + u.Egress.Why
			}
			if u.Ingress != nil {
				said += map[bool]string{true: "; "}[said != ""] + "ingress: " + u.Ingress.Why
			}
			if said != "" {
				return said
			}
		}
	}
	return ""
}
