package request

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/support/suggest"
)

// rules tries the rules of a host and, after them, those for what no host serves. host is nil if the listener
// has none for the name.
func (x *explainer) rules(a *Answer, l *table.Listener, host *table.Host) {
	if host != nil {
		a.Host = hostnameOf(l, host)
	}
	request := x.Message.request()
	var found *Rule
	for _, h := range []*table.Host{host, l.Rest()} {
		if h == nil {
			continue
		}
		routes := h.Routes()
		for i := range routes {
			r := newRule(&routes[i])
			switch r.judge(h.Compared(request)); {
			case r.WhyNot != "":
			case found == nil:
				found = &r
			case found.Match == r.Match:
				r.WhyNot = "it has the same match as " + found.Name + ", which comes first: it never serves"
			default:
				r.WhyNot = "it matches, too, and comes later"
			}
			a.Rules = append(a.Rules, r)
		}
	}
	if found != nil {
		x.serve(a, found)
		return
	}
	a.Status, a.Reason = 404, "no rule matches"
	if len(a.Rules) == 0 {
		a.Reason = "no route has the host"
	}
	told := x.unattached()
	switch {
	case len(a.Rules) > 0:
		x.nearest(a)
	case !told:
		x.noHost(l)
	}
}

// newRule returns a rule as it is listed.
func newRule(r *table.Route) Rule {
	made := Rule{Name: fmt.Sprintf("%s rule %d", r.Rule.Object, r.Rule.Index), Match: r.String(), route: r}
	switch {
	case strings.HasPrefix(r.Rule.Object, "ingress "):
		made.Name = r.Rule.Object + " " + r.Rule.Name
	case r.Rule.Name != "":
		made.Name += " (" + r.Rule.Name + ")"
	}
	return made
}

// The nearness of misses, the nearest first.
const (
	missesValue = iota // the path is right
	missesSpelling
	missesPath
)

// judge sets why a request does not match; nothing if it does.
func (r *Rule) judge(request *table.Request) {
	if !r.route.OnPath(request.Path) {
		r.WhyNot, r.nearness = whyNotPath(&r.route.Match, request.Path)
		return
	}
	r.WhyNot = whyNotValue(&r.route.Match, request)
}

// whyNotPath returns why a path does not match, and how near it is.
func whyNotPath(m *table.Match, path string) (why string, nearness int) {
	bare, wanted := strings.TrimSuffix(path, "/"), strings.TrimSuffix(m.Path, "/")
	switch {
	case m.Kind == table.Expression:
		return "the whole path is not as the regular expression says", missesPath
	case m.Kind == table.Exact && bare == wanted:
		if path == bare {
			return "a slash at the end is missing, which counts in an exact path", missesSpelling
		}
		return "the slash at the end counts in an exact path", missesSpelling
	case m.Kind == table.Exact && strings.EqualFold(path, m.Path):
		return "upper and lower case differ", missesSpelling
	case m.Kind == table.Exact:
		return "the path is another one", missesPath
	case len(path) >= len(wanted) && strings.EqualFold(path[:len(wanted)], wanted) && path[:len(wanted)] != wanted:
		return "upper and lower case differ", missesSpelling
	case strings.HasPrefix(path, wanted):
		return "a prefix matches whole elements of the path", missesSpelling
	}
	return "the path does not begin with it", missesPath
}

// whyNotValue returns what of a request besides its path does not match; empty if all does.
func whyNotValue(m *table.Match, request *table.Request) string {
	miss := m.Miss(request)
	if miss == "method" {
		return "the method is " + request.Method
	}
	if name, ok := strings.CutPrefix(miss, "header "); ok {
		values := request.Header[name]
		if len(values) == 0 {
			return "there is no header " + name
		}
		return fmt.Sprintf("the header %s is %q", name, strings.Join(values, ", "))
	}
	if name, ok := strings.CutPrefix(miss, "query parameter "); ok {
		values, err := url.ParseQuery(request.Query)
		if given := values[name]; err == nil && len(given) > 0 {
			return fmt.Sprintf("the query parameter %s is %q", name, given[0])
		}
		return "there is no query parameter " + name
	}
	return miss
}

// nearest adds the rule that misses the request most narrowly.
func (x *explainer) nearest(a *Answer) {
	r := slices.MinFunc(a.Rules, func(a, b Rule) int { return a.nearness - b.nearness })
	path := x.Message.Path
	switch m := &r.route.Match; r.nearness {
	case missesPath:
		x.add("no-rule", "add a rule for the path, or ask for one that there is",
			"no rule of the host has the path %s; there are rules for %s", path, paths(a.Rules))
	case missesSpelling:
		x.add("no-rule", fmt.Sprintf("ask for %s, or add a rule for %s", m.Path, path),
			"the nearest rule is %s, %s: %s", r.Name, r.Match, r.WhyNot)
	default:
		x.add("no-rule", x.cureOfMiss(m), "the nearest rule is %s, %s: %s", r.Name, r.Match, r.WhyNot)
	}
}

// cureOfMiss returns what a request lacks besides its path.
func (x *explainer) cureOfMiss(m *table.Match) string {
	miss := m.Miss(x.Message.request())
	if miss == "method" {
		return fmt.Sprintf("use %s (--method %s), or add a rule for %s", m.Method, m.Method, x.Message.Method)
	}
	for _, of := range []struct {
		kind   string
		values []table.Value
	}{{"header ", m.Headers}, {"query parameter ", m.Query}} {
		for _, v := range of.values {
			if of.kind+v.Name != miss {
				continue
			}
			wanted := strconv.Quote(v.Text)
			if v.Expression != nil {
				wanted = "a value as " + v.Expression.String() + " says"
			}
			return fmt.Sprintf("give the %s %s, or add a rule without that condition", miss, wanted)
		}
	}
	return "send the request as the rule says"
}

// paths lists the paths of rules, the first ones.
func paths(rules []Rule) string {
	var all []string
	for i := range rules {
		text := rules[i].route.Path
		if text == "" {
			text = "/"
		}
		if !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return few(all)
}

// noHost says that no route at a listener has the host.
func (x *explainer) noHost(l *table.Listener) {
	of, cure := "route of "+l.Name, "add "+x.Message.Host+" to the hostnames of a route"
	if l.Name == ingresses {
		of, cure = "Ingress", "add a rule for the host "+x.Message.Host
	}
	var names []string
	for name := range l.Hosts() {
		if name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if x.isAddressed() {
		cure = nameTheHost
	}
	switch near := suggest.Closest(x.Message.Host, names); {
	case near != "":
		x.add("no-host", "use the host "+near+", or "+cure, "no %s has the host %s; there is %s", of, x.Message.Host, near)
	case len(names) == 0:
		x.add("no-host", "attach an HTTPRoute to it", "%s has no routes", l.Name)
	default:
		x.add("no-host", cure, "no %s has the host %s; there is %s", of, x.Message.Host, few(names))
	}
}
