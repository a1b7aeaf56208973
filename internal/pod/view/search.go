package view

import (
	"cmp"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/pod/explain"
	"portolan.dev/portolan/internal/support/suggest"
)

// Found is the result of a search.
type Found struct {
	Items   []Item    `json:"items"`
	More    bool      `json:"more"`
	NotRead []NotRead `json:"notRead,omitempty"`
}

// Item is one thing that was found.
type Item struct {
	// Kind is a kind of object, or name or address, which nothing in the model has.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Title     string `json:"title"`
	Detail    string `json:"detail,omitempty"`
	// Href is the view of it in the page; empty if there is none.
	Href string `json:"href,omitempty"`
	rank int
}

// The ranks of what is found, the best first.
const (
	exact = iota
	prefix
	inName
	inDetail
	last // what the page offers if nothing is found
)

// searched are the kinds whose names are searched, in the order in which equal matches are listed.
var searched = []cluster.Kind{
	cluster.KindService, cluster.KindPod, cluster.KindGateway, cluster.KindIngress, cluster.KindHTTPRoute,
	cluster.KindGRPCRoute, cluster.KindNetworkPolicy, cluster.KindClusterNetworkPolicy, cluster.KindNode,
}

// search is a search in progress.
type search struct {
	*Model
	asked string      // the text, in lower case
	text  string      // the same, of a URL the host
	addr  netip.Addr  // not valid if the text is none
	key   cluster.Key // of texts that name a Service, such as web.shop or shop/web
	limit int
	items []Item
	more  bool
	// worst is the last item that is kept, if there are as many as are wanted; nil before.
	worst *Item
}

// Search finds objects by their names, their hosts and their addresses. It looks at each object
// once, and keeps the limit of the best.
func (m *Model) Search(text string, limit int) Found {
	s := &search{Model: m, text: strings.ToLower(strings.TrimSpace(text)), limit: limit, items: []Item{}}
	s.asked = s.text
	if u, err := url.Parse(s.text); err == nil && u.Scheme != "" && u.Host != "" {
		s.text = u.Hostname()
	}
	if s.text == "" {
		return Found{Items: s.items}
	}
	host := s.text
	if at, err := netip.ParseAddrPort(s.text); err == nil {
		host = at.Addr().String()
	}
	if addr, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		s.addr = addr.Unmap()
	}
	s.key = s.named()
	for _, k := range searched {
		for o := range m.View.Objects(k) {
			s.consider(o)
		}
	}
	s.sort()
	s.other()
	return Found{Items: s.items, More: s.more, NotRead: m.lacks(searched...)}
}

// named returns the Service that the text names: as NAMESPACE/NAME, NAME.NAMESPACE or its full name.
func (s *search) named() cluster.Key {
	if namespace, name, ok := strings.Cut(s.text, "/"); ok {
		return cluster.Key{Namespace: namespace, Name: name}
	}
	if key, ok := explain.ServiceOf(strings.TrimSuffix(s.text, ".")+".", s.Linter.Domains); ok {
		return key
	}
	parts := strings.Split(strings.TrimSuffix(s.text, "."), ".")
	if len(parts) == 2 || len(parts) == 3 && parts[2] == "svc" {
		return cluster.Key{Namespace: parts[1], Name: parts[0]}
	}
	return cluster.Key{}
}

// consider adds an object if it matches.
func (s *search) consider(o cluster.Object) {
	ref := o.Ref()
	rank, ok := s.match(ref.Key)
	detail := ""
	if !ok {
		if detail = s.matchOf(o); detail == "" {
			return
		}
		rank = inDetail
		if s.addr.IsValid() {
			rank = exact
		}
	}
	s.add(Item{
		Kind: ref.Kind.String(), Namespace: ref.Key.Namespace, Name: ref.Key.Name, Detail: detail, rank: rank,
		Title: ref.Key.String(),
	})
}

// match returns how well the text matches a key.
func (s *search) match(key cluster.Key) (rank int, ok bool) {
	switch {
	case key == s.key, key.Name == s.text:
		return exact, true
	case strings.HasPrefix(key.Name, s.text), key.Namespace == s.key.Namespace && key.Namespace != "" &&
		strings.HasPrefix(key.Name, s.key.Name):
		return prefix, true
	case strings.Contains(key.Name, s.text), key.Namespace == s.text:
		return inName, true
	}
	return 0, false
}

// matchOf returns what of an object, besides its key, matches the text; empty if nothing does.
func (s *search) matchOf(o cluster.Object) string {
	switch o := o.(type) {
	case *cluster.Service:
		if o.Spec != nil && slices.Contains(o.Spec.ExternalIPs, s.addr) ||
			o.Spec != nil && slices.ContainsFunc(o.Spec.Ingress, func(i cluster.IngressIP) bool { return i.Addr == s.addr }) {
			return "has the address " + s.addr.String()
		}
		return cmp.Or(s.address(o.ClusterIPs), s.host([]string{o.ExternalName}))
	case *cluster.Pod:
		if had := s.address(o.IPs); had != "" && o.Finished {
			return strings.Replace(had, "has", "had", 1) + ", and has finished"
		}
		return s.address(o.IPs)
	case *cluster.Node:
		return s.address(o.Addresses)
	case *cluster.Frontend:
		return cmp.Or(s.address(o.Addresses), s.host(o.Hosts))
	case *cluster.Route:
		return s.host(o.Hosts)
	}
	return ""
}

func (s *search) address(of []netip.Addr) string {
	if s.addr.IsValid() && slices.Contains(of, s.addr) {
		return "has the address " + s.addr.String()
	}
	return ""
}

// host returns which of the hosts matches.
func (s *search) host(of []string) string {
	if s.addr.IsValid() {
		return ""
	}
	for _, h := range of {
		if strings.Contains(h, s.text) {
			return "has the host " + h
		}
	}
	return ""
}

// add adds an item, and drops the worst when there are many.
func (s *search) add(i Item) {
	if s.worst != nil && compare(&i, s.worst) > 0 {
		s.more = true
		return
	}
	s.items = append(s.items, i)
	if len(s.items) > 8*s.limit {
		s.sort()
	}
}

// sort orders the items, the best first, and drops those above the limit.
func (s *search) sort() {
	slices.SortFunc(s.items, func(a, b Item) int { return compare(&a, &b) })
	if len(s.items) > s.limit {
		worst := s.items[s.limit-1]
		s.items, s.more, s.worst = s.items[:s.limit], true, &worst
	}
	for i := range s.items {
		s.items[i].Href = href(&s.items[i])
	}
}

// compare orders items, the best first.
func compare(a, b *Item) int {
	if c := cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(len(a.Name), len(b.Name))); c != 0 {
		return c
	}
	place := func(i *Item) int {
		return slices.IndexFunc(searched, func(k cluster.Kind) bool { return k.String() == i.Kind })
	}
	return cmp.Or(
		cmp.Compare(place(a), place(b)), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Namespace, b.Namespace),
	)
}

// other offers, if nothing is found, what has a similar name, and to explain the address or the name.
func (s *search) other() {
	if len(s.items) > 0 {
		return
	}
	s.similar()
	i := Item{Name: s.text, Title: s.text, rank: last, Href: "#/explain?target=" + url.QueryEscape(s.asked)}
	switch {
	case s.addr.IsValid():
		i.Kind, i.Detail = "address", "no object has the address"
	case strings.Contains(s.text, "."):
		i.Kind, i.Detail = "name", "no object has the name; how it resolves can be explained"
	}
	if i.Kind != "" {
		s.items = append(s.items, i)
	}
	s.items = s.items[:min(len(s.items), s.limit)]
}

// similar adds what a misspelled name was probably meant to be.
func (s *search) similar() {
	if s.addr.IsValid() {
		return
	}
	having := make(map[string][]Item)
	consider := func(name string, o cluster.Object) {
		i := Item{Kind: o.Ref().Kind.String(), Namespace: o.Ref().Key.Namespace, Name: o.Ref().Key.Name, rank: last}
		i.Title, i.Detail, i.Href = o.Ref().Key.String(), "has a similar name: "+name, href(&i)
		having[name] = append(having[name], i)
	}
	for _, k := range searched {
		if k == cluster.KindPod { // with names that nobody types
			continue
		}
		for o := range s.View.Objects(k) {
			s.names(o, consider)
		}
	}
	near := suggest.Closest(s.text, slices.Sorted(maps.Keys(having)))
	s.items = append(s.items, having[near]...)
	slices.SortFunc(s.items, func(a, b Item) int { return compare(&a, &b) })
}

// names calls consider with each name of an object that the text may mean: its own, with its namespace if the text has
// one, and its hosts.
func (s *search) names(o cluster.Object, consider func(name string, o cluster.Object)) {
	key := o.Ref().Key
	switch {
	case s.key.Name == "":
		consider(key.Name, o)
	case strings.Contains(s.text, "/"):
		consider(key.String(), o)
	default: // NAME.NAMESPACE, and what follows
		consider(key.Name+"."+key.Namespace+s.text[len(s.key.Name+"."+s.key.Namespace):], o)
	}
	switch o := o.(type) {
	case *cluster.Frontend:
		for _, h := range o.Hosts {
			consider(h, o)
		}
	case *cluster.Route:
		for _, h := range o.Hosts {
			consider(h, o)
		}
	}
}

// href returns the view of an object in the page; empty if there is none.
func href(i *Item) string {
	path := url.PathEscape(i.Namespace) + "/" + url.PathEscape(i.Name)
	switch i.Kind {
	case cluster.KindService.String():
		return "#/service/" + path
	case cluster.KindPod.String():
		return "#/pod/" + path
	case cluster.KindIngress.String(), cluster.KindHTTPRoute.String(), cluster.KindGRPCRoute.String():
		return "#/gateways?route=" + url.QueryEscape(i.Namespace+"/"+i.Name)
	case cluster.KindGateway.String():
		return "#/gateways"
	case cluster.KindNetworkPolicy.String():
		return "#/policy/" + path
	case cluster.KindClusterNetworkPolicy.String():
		return "#/policy/" + url.PathEscape(i.Name)
	}
	return ""
}
