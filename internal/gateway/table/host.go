package table

import (
	"cmp"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Host is the routes of a hostname.
type Host struct {
	routes  []Route // all, in order
	groups  []group // of them
	decodes bool    // see Decoding
}

// group is routes of which the path decides first.
type group struct {
	exact       map[string][]*Route
	expressions []expression
	prefixes    node
}

// expression is the routes of a regular expression.
type expression struct {
	path   *regexp.Regexp
	routes []*Route
}

// node is a path's element and the routes of the prefix that ends there.
type node struct {
	below  map[string]*node
	routes []*Route
}

// NewHost returns the Host that serves these routes. Of the routes of a group that match a request, it takes
// that with the more specific path, then that with a method, that with more headers, and that with more
// parameters; of equal ones the first. A group is for the requests that no route of those before it matches.
func NewHost(groups ...[]Route) *Host {
	n := 0
	for _, routes := range groups {
		n += len(routes)
	}
	h := &Host{routes: make([]Route, 0, n), groups: make([]group, 0, len(groups))}
	for _, routes := range groups {
		begin := len(h.routes)
		h.routes = append(h.routes, routes...)
		ordered := h.routes[begin:]
		slices.SortStableFunc(ordered, func(a, b Route) int { return a.compare(&b.Match) })
		h.groups = append(h.groups, newGroup(ordered))
	}
	return h
}

// Decoding returns a Host as h whose routes, which have paths that are Decoded, are compared with paths that are.
func (h *Host) Decoding() *Host {
	made := *h
	made.decodes = true
	return &made
}

// Compared returns a request as the routes of h are compared with it.
func (h *Host) Compared(r *Request) *Request {
	if !h.decodes {
		return r
	}
	path := Decoded(r.Path)
	if path == r.Path {
		return r
	}
	made := *r
	made.Path = path
	return &made
}

// newGroup returns the group of routes that are in order. It keeps them.
func newGroup(routes []Route) (g group) {
	for i := range routes {
		r := &routes[i]
		switch r.Kind {
		case Exact:
			if g.exact == nil {
				g.exact = make(map[string][]*Route)
			}
			g.exact[r.Path] = append(g.exact[r.Path], r)
		case Prefix:
			n := &g.prefixes
			for rest := r.Path; ; {
				element, more, ok := nextElement(rest)
				if !ok {
					break
				}
				n, rest = n.child(element), more
			}
			n.routes = append(n.routes, r)
		case Expression:
			if n := len(g.expressions); n > 0 && g.expressions[n-1].routes[0].Path == r.Path {
				g.expressions[n-1].routes = append(g.expressions[n-1].routes, r)
				continue
			}
			g.expressions = append(g.expressions, expression{r.Whole, []*Route{r}})
		}
	}
	return g
}

// CompileWhole compiles a regular expression (RE2) so that it matches whole texts.
func CompileWhole(text string) (*regexp.Regexp, error) {
	if _, err := regexp.Compile(text); err != nil { // so that the error shows the text as it is
		return nil, err
	}
	return regexp.Compile(`\A(?:` + text + `)\z`)
}

// compare is negative if m precedes o.
func (m *Match) compare(o *Match) int {
	mine, other := m.path(), o.path()
	return cmp.Or(
		cmp.Compare(m.Kind, o.Kind),
		cmp.Compare(len(other), len(mine)),
		cmp.Compare(mine, other),
		cmp.Compare(min(1, len(o.Method)), min(1, len(m.Method))),
		cmp.Compare(len(o.Headers), len(m.Headers)),
		cmp.Compare(len(o.Query), len(m.Query)),
	)
}

// String returns all that a request must be like, for people. Matches of the same requests have the same
// text.
func (m *Match) String() string {
	var b strings.Builder
	b.WriteString([...]string{Exact: "= ", Expression: "~ ", Prefix: ""}[m.Kind])
	b.WriteString(cmp.Or(m.path(), "/"))
	if m.Method != "" {
		b.WriteString(" " + m.Method)
	}
	writeValues(&b, " header ", m.Headers)
	writeValues(&b, " query ", m.Query)
	return b.String()
}

// writeValues writes conditions in the order of their names.
func writeValues(b *strings.Builder, what string, values []Value) {
	byName := func(a, b Value) int { return cmp.Compare(a.Name, b.Name) }
	for _, v := range slices.SortedFunc(slices.Values(values), byName) {
		b.WriteString(what + v.Name)
		if v.Expression != nil {
			b.WriteString(" ~ " + v.Expression.String())
		} else {
			b.WriteString(" = " + strconv.Quote(v.Text))
		}
	}
}

// path returns what counts of the path.
func (m *Match) path() string {
	if m.Kind == Prefix {
		return strings.TrimSuffix(m.Path, "/")
	}
	return m.Path
}

// Routes returns the routes of h in their order: the first one of which OnPath and Miss say that a request
// matches serves it. The list must not be changed.
func (h *Host) Routes() []Route { return h.routes }

// child returns the node of an element below n, which it makes if there is none.
func (n *node) child(element string) *node {
	c := n.below[element]
	if c == nil {
		if n.below == nil {
			n.below = make(map[string]*node)
		}
		c = new(node)
		n.below[element] = c
	}
	return c
}

// nextElement cuts the first element off a path. Slashes at its end are no elements; ok is false at
// the end.
func nextElement(path string) (element, rest string, ok bool) {
	path = strings.TrimPrefix(path, "/")
	if path == "" {
		return "", "", false
	}
	if i := strings.IndexByte(path, '/'); i >= 0 {
		return path[:i], path[i:], true
	}
	return path, "", true
}

// Request is what routes look at.
type Request struct {
	Method string
	// Path is a normal one, see Normalize.
	Path string
	// Query is as in the request's target, without the question mark.
	Query string
	// Header has canonical names, as http.Header.
	Header map[string][]string
}

// Find returns the route that serves a request, nil if none does. It allocates nothing, unless it
// compares a field that the head has several times, a parameter that is percent-encoded, or a path that it decodes.
func (h *Host) Find(r *Request) *Route {
	r = h.Compared(r)
	for i := range h.groups {
		if found := h.groups[i].find(r); found != nil {
			return found
		}
	}
	return nil
}

func (g *group) find(r *Request) *Route {
	if found := first(g.exact[r.Path], r); found != nil {
		return found
	}
	for i := range g.expressions {
		if e := &g.expressions[i]; e.path.MatchString(r.Path) {
			if found := first(e.routes, r); found != nil {
				return found
			}
		}
	}
	return g.prefixes.find(r.Path, r)
}

// find returns the route with the longest prefix of what is left of a path.
func (n *node) find(rest string, r *Request) *Route {
	if element, more, ok := nextElement(rest); ok {
		if c := n.below[element]; c != nil {
			if found := c.find(more, r); found != nil {
				return found
			}
		}
	}
	return first(n.routes, r)
}

// first returns the first of routes whose method, headers and parameters are those of the request.
func first(routes []*Route, r *Request) *Route {
	for _, route := range routes {
		if what, _ := route.miss(r); what == "" {
			return route
		}
	}
	return nil
}

// OnPath reports whether the path of a request, which is a normal one, is as m says.
func (m *Match) OnPath(path string) bool {
	switch m.Kind {
	case Exact:
		return path == m.Path
	case Expression:
		return m.Whole.MatchString(path)
	}
	for prefix := m.Path; ; {
		element, more, ok := nextElement(prefix)
		if !ok {
			return true
		}
		first, rest, has := nextElement(path)
		if !has || first != element {
			return false
		}
		prefix, path = more, rest
	}
}

// Miss returns what of a request, its path aside, is not as m says: "method", "header NAME" or
// "query parameter NAME"; empty if all is.
func (m *Match) Miss(r *Request) string {
	what, name := m.miss(r)
	return strings.TrimSpace(what + " " + name)
}

// miss is Miss, without an allocation.
func (m *Match) miss(r *Request) (what, name string) {
	if m.Method != "" && m.Method != r.Method {
		return "method", ""
	}
	for i := range m.Headers {
		if v := &m.Headers[i]; !v.inHeader(r.Header) {
			return "header", v.Name
		}
	}
	for i := range m.Query {
		if v := &m.Query[i]; !v.inQuery(r.Query) {
			return "query parameter", v.Name
		}
	}
	return "", ""
}

// inHeader reports whether a head has the field. Of several with its name, the values are joined with
// commas (RFC 9110, section 5.2).
func (v *Value) inHeader(header map[string][]string) bool {
	values := header[v.Name]
	switch len(values) {
	case 0:
		return false
	case 1:
		return v.matches(values[0])
	}
	return v.matches(strings.Join(values, ", "))
}

// inQuery reports whether the first parameter with the name has the value (HTTPQueryParamMatch).
func (v *Value) inQuery(query string) bool {
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		name, value, _ := strings.Cut(pair, "=")
		if decoded(name) == v.Name {
			return v.matches(decoded(value))
		}
	}
	return false
}

// decoded returns a part of a query without its percent-encoding; one that is not encoded rightly
// stays as it is.
func decoded(part string) string {
	if !strings.ContainsAny(part, "%+") {
		return part
	}
	if text, err := url.QueryUnescape(part); err == nil {
		return text
	}
	return part
}

func (v *Value) matches(text string) bool {
	if v.Expression != nil {
		return v.Expression.MatchString(text)
	}
	return v.Text == text
}
