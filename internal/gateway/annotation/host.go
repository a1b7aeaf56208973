package annotation

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"portolan.dev/portolan/internal/cluster"
)

// Ingress is an Ingress, and what its annotations say.
type Ingress struct {
	Key      cluster.Key
	Spec     *cluster.IngressSpec
	Settings *Settings
}

// Host is what Ingresses together have of a host.
type Host struct {
	Name string
	// Regex: all paths are regular expressions without regard to case, since an Ingress of the host has use-regex or
	// rewrite-target (ingress-nginx, "Ingress Path Matching").
	Regex bool
	// TLS: an Ingress of the host has tls. What is redirected depends on it.
	TLS bool
	// ClosedBy is the oldest Ingress of which Settings.HostDenied says that no request is served; nil for none.
	ClosedBy *Ingress
	// AppRoot is where "/" leads, of the oldest Ingress that says so; empty for nowhere.
	AppRoot string
	// Locations are in the order in which they are tried: those of type Exact first, unless Regex, then longer ones.
	Locations []Location
	// Lost are canaries whose path no Ingress has.
	Lost []Location
}

// Location is a path of an Ingress.
type Location struct {
	Of *Ingress
	// Rule and Path are the positions of the rule in the spec, and of the path in the rule.
	Rule, Path int
	// Text is the path; "/" where the Ingress has none.
	Text    string
	Type    cluster.PathType
	Backend *cluster.IngressBackend
	// Canary is the path of the canary; nil for none.
	Canary *Location
}

// Merge returns what Ingresses have of a host, each of which has a rule for it. It sorts them: of equal paths that of
// the older Ingress counts, and the first one of an Ingress.
func Merge(name string, of []*Ingress) *Host {
	slices.SortFunc(of, func(a, b *Ingress) int { return cmp.Or(a.Spec.Compare(b.Spec.Age), a.Key.Compare(b.Key)) })
	h := &Host{Name: name}
	var canaries []Location
	for _, i := range of {
		if i.Settings.HostDenied != "" {
			h.ClosedBy = cmp.Or(h.ClosedBy, i)
		}
		if i.Settings.Canary != nil {
			canaries = append(canaries, i.locations(name)...)
			continue
		}
		h.TLS = h.TLS || len(i.Spec.TLS) > 0
		h.AppRoot = cmp.Or(h.AppRoot, i.Settings.AppRoot)
		for _, l := range i.locations(name) {
			h.Regex = h.Regex || i.Settings.UseRegex || l.Rewrites()
			if !slices.ContainsFunc(h.Locations, l.same) {
				h.Locations = append(h.Locations, l)
			}
		}
	}
	for _, c := range canaries {
		h.attach(c)
	}
	slices.SortStableFunc(h.Locations, h.order)
	return h
}

// Denied says why no request for the host is served, and whose annotation that is; empty if requests are.
func (h *Host) Denied() string {
	if h.ClosedBy == nil {
		return ""
	}
	name, why, _ := strings.Cut(h.ClosedBy.Settings.HostDenied, " ")
	return fmt.Sprintf("%s of Ingress %s %s", name, h.ClosedBy.Key, why)
}

// locations are the paths of an Ingress for a host.
func (i *Ingress) locations(host string) (all []Location) {
	for n := range i.Spec.Rules {
		rule := &i.Spec.Rules[n]
		if rule.Host != host {
			continue
		}
		for m := range rule.Paths {
			p := &rule.Paths[m]
			all = append(all, Location{
				Of: i, Rule: n, Path: m, Text: cmp.Or(p.Path, "/"), Type: p.Type, Backend: &p.Backend,
			})
		}
	}
	return all
}

// same reports whether two locations are for the same path.
func (l *Location) same(o Location) bool { return l.Text == o.Text && l.Type == o.Type }

// Rewrites reports whether the path of requests is rewritten.
func (l *Location) Rewrites() bool {
	return l.Of.Settings.Rewrite != "" && l.Of.Settings.Rewrite != l.Text
}

// Target returns the Rewrite for a location, without the groups that its expression has not: they are empty. It is
// empty if the path is not rewritten.
func (l *Location) Target() string {
	if !l.Rewrites() {
		return ""
	}
	groups := 0
	if e, err := l.RewriteExpression(); err == nil {
		groups = e.NumSubexp()
	}
	target := l.Of.Settings.Rewrite
	for n := groups + 1; n <= 9; n++ {
		target = strings.ReplaceAll(target, "$"+strconv.Itoa(n), "")
	}
	return cmp.Or(target, "/")
}

// attach makes a location the canary of that with the same path, which can have one.
func (h *Host) attach(c Location) {
	n := slices.IndexFunc(h.Locations, c.same)
	if n < 0 || h.Locations[n].Canary != nil {
		h.Lost = append(h.Lost, c)
		return
	}
	h.Locations[n].Canary = &c
}

// order is negative if a is tried before b.
func (h *Host) order(a, b Location) int {
	return cmp.Or(
		cmp.Compare(h.rank(&a), h.rank(&b)), cmp.Compare(len(b.Text), len(a.Text)), strings.Compare(b.Text, a.Text),
	)
}

func (h *Host) rank(l *Location) int {
	if h.Regex || l.Type != cluster.PathExact {
		return 1
	}
	return 0
}

// Expression returns the regular expression of a path of a host with Regex, which is searched for from the beginning
// of a path. Its dot is any character, so that no end of a line is a way around. RE2 has no lookaround and no
// backreferences, which are errors.
func (l *Location) Expression() (*regexp.Regexp, error) {
	if _, err := regexp.Compile(l.Text); err != nil {
		return nil, err
	}
	return regexp.Compile("(?is)^" + l.Text)
}

// Literal returns what all paths begin with that the expression of a location may match, also one that is not RE2's.
func (l *Location) Literal() string {
	end := strings.IndexAny(l.Text, `\.+*?()[]{}^$|`)
	switch {
	case end < 0:
		return l.Text
	case strings.Contains(l.Text, "|"):
		return ""
	case end > 0 && strings.IndexByte("*?{", l.Text[end]) >= 0: // the last one may be missing
		_, last := utf8.DecodeLastRuneInString(l.Text[:end])
		end -= last
	}
	return l.Text[:end]
}

// RewriteExpression returns the regular expression that Rewrite replaces, which is searched for anywhere in a path.
func (l *Location) RewriteExpression() (*regexp.Regexp, error) {
	return regexp.Compile("(?is)" + l.Text)
}
