package connection

import (
	"fmt"
	"io"
	"strings"

	"portolan.dev/portolan/internal/pod/explain"
	"portolan.dev/portolan/internal/proxy/plan"
)

// mostEndpoints is the maximum number of endpoints that the text lists for an address.
const mostEndpoints = 20

// WriteText prints the explanation as text: how the name resolves, then each address.
func (e *Explanation) WriteText(w io.Writer, style explain.Style) error {
	if e.DNS != nil {
		if err := e.DNS.WriteText(w, style); err != nil || !e.DNS.Found() {
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
	fmt.Fprintf(&b, "\n%s\n", e.Summary())
	for _, d := range e.Diagnoses {
		fmt.Fprintf(&b, "  why:  %s\n  cure: %s\n", d.Why, d.Cure)
	}
	return explain.WritePlain(w, b.String())
}

// WriteDetails prints the addresses that the client tries, with their endpoints.
func (e *Explanation) WriteDetails(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s from %s\n", e.Target, e.From)
	for i := range e.Attempts {
		e.Attempts[i].write(&b)
	}
	return explain.WritePlain(w, b.String())
}

// Summary returns the outcome in a line.
func (e *Explanation) Summary() string {
	if !e.Connects() {
		return e.Outcome
	}
	for i := range e.Attempts {
		a := &e.Attempts[i]
		if a.Outcome != Connected {
			continue
		}
		var used []string
		for _, u := range a.Endpoints {
			if u.Used {
				used = append(used, u.Address)
			}
		}
		switch {
		case a.Chosen != "":
			return "connected to " + a.Chosen
		case len(used) == 0:
			return "connected to " + a.Address
		case len(used) == 1:
			return "connected to " + used[0]
		case len(used) > mostEndpoints:
			return fmt.Sprintf("connected to one of %d endpoints", len(used))
		}
		return "connected to one of " + strings.Join(used, ", ")
	}
	return e.Outcome
}

func (a *Attempt) write(b *strings.Builder) {
	fmt.Fprintf(b, "\n%s\n", a.whose())
	a.writeEndpoints(b)
	if a.Choice != "" && a.Chosen == "" {
		fmt.Fprintf(b, "  the client's port decides which one is used (%s)\n", a.Choice)
	}
	if a.Masqueraded != "" {
		fmt.Fprintf(b, "  endpoints see an address of the node as the source (%s)\n", a.Masqueraded)
	}
	if a.Kernel != nil {
		a.Kernel.write(b)
	}
}

// whose says who has the address.
func (a *Attempt) whose() string {
	text := a.Address
	switch {
	case a.Service == "":
		text += " is not an address of a Service that is served"
	case a.Port == "":
		text += fmt.Sprintf(" is %s address of Service %s, policy %s", withArticle(a.Kind), a.Service, a.Policy)
	default:
		text += fmt.Sprintf(
			" is %s address of Service %s, port %s, policy %s",
			withArticle(a.Kind),
			a.Service,
			a.Port,
			a.Policy,
		)
	}
	if a.Node != "" {
		text += ", on node " + a.Node
	}
	return text
}

// Summary says who has the address, and how many endpoints connections to it use.
func (a *Attempt) Summary() string {
	used, pod := 0, ""
	for i := range a.Endpoints {
		if a.Endpoints[i].Used {
			used++
			pod = a.Endpoints[i].Pod
		}
	}
	switch {
	case a.Service == "" && pod != "":
		return a.Address + " is an address of Pod " + pod
	case a.Service == "":
		return a.whose()
	}
	return fmt.Sprintf("%s is %s address of Service %s, with %d of %d endpoints used", a.Address, withArticle(a.Kind),
		a.Service, used, len(a.Endpoints))
}

// writeEndpoints lists the first endpoints, and the one that the client gets.
func (a *Attempt) writeEndpoints(b *strings.Builder) {
	more := 0
	for i, u := range a.Endpoints {
		chosen := u.Address == a.Chosen
		if i >= mostEndpoints && !chosen {
			more++
			continue
		}
		use := "used"
		switch {
		case chosen:
			use = "used for this client (" + a.Choice + ")"
		case a.Chosen != "":
			use = "used for other clients"
		}
		u.write(b, use)
	}
	if more > 0 {
		fmt.Fprintf(b, "  and %d more endpoints\n", more)
	}
}

// write prints the endpoint. use says that it is used, if it is.
func (u *Use) write(b *strings.Builder, use string) {
	var where []string
	if u.Pod != "" {
		where = append(where, "Pod "+u.Pod)
	}
	if u.Node != "" {
		where = append(where, "node "+u.Node)
	}
	fmt.Fprintf(b, "  %s", u.Address)
	if len(where) > 0 {
		fmt.Fprintf(b, " (%s)", strings.Join(where, ", "))
	}
	switch {
	case !u.Used:
		fmt.Fprintf(b, ": not used: %s\n", u.WhyNot)
	case u.Weight != plan.DefaultWeight:
		fmt.Fprintf(b, ": %s, weight %d\n", use, u.Weight)
	default:
		fmt.Fprintf(b, ": %s\n", use)
	}
}

// withArticle returns a kind of address with its article: an ExternalIP, a ClusterIP.
func withArticle(kind string) string {
	if kind == string(plan.ExternalIP) {
		return "an " + kind
	}
	return "a " + kind
}
