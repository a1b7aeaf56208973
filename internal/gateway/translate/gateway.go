package translate

import (
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/annotation"
)

// api is the version of Gateway API's objects.
const api = "gateway.networking.k8s.io/v1"

// httpListener is the name of the listener for HTTP.
const httpListener = "http"

// maxRanges is how many ranges of clients a list of a RoutePolicy can have, and maxCount how many requests it can
// count.
const maxRanges, maxCount = 1024, 1 << 30

// maxListeners is how many listeners a ListenerSet can have (ListenerSetSpec.listeners).
const maxListeners = 64

// secure is a listener with TLS.
type secure struct {
	name, hostname    string
	namespace, secret string
	set               string // the name of its ListenerSet
}

func keys[K comparable, V any](m map[K]V) iter.Seq[K] { return maps.Keys(m) }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// meta returns the metadata of an object.
func meta(key cluster.Key) Object { return Object{"name": key.Name, "namespace": key.Namespace} }

// allNamespaces lets routes of all namespaces attach.
func allNamespaces() Object { return Object{"namespaces": Object{"from": "All"}} }

// gateway returns the Gateway.
func (t *translator) gateway() Object {
	spec := Object{
		"gatewayClassName": t.cfg.GatewayClass,
		"listeners": []any{Object{
			"name": httpListener, "port": 80, "protocol": "HTTP", "allowedRoutes": allNamespaces(),
		}},
	}
	if len(t.secure) > 0 {
		spec["allowedListeners"] = allNamespaces()
	}
	return Object{"apiVersion": api, "kind": "Gateway", "metadata": meta(t.cfg.Gateway), "spec": spec}
}

// secureListener returns the listener with TLS of a host; nil if no Ingress has a Secret for it. The Secret of the
// oldest one counts.
func (t *translator) secureListener(h *host, of []*annotation.Ingress) *secure {
	for _, i := range of {
		for _, entry := range i.Spec.TLS {
			if h.Name == "" || i.Settings.Canary != nil || !slices.Contains(entry.Hosts, h.Name) {
				continue
			}
			if entry.Secret == "" {
				h.sources[i].noteField("spec.tls", annotation.Missing, h.Name+" has no Secret: a listener needs one")
				continue
			}
			n := 0
			for _, l := range t.secure {
				if l.namespace == i.Key.Namespace {
					n++
				}
			}
			l := secure{
				name:      limit(strings.ReplaceAll(strings.Replace(h.Name, "*", "any", 1), ".", "-"), 60),
				hostname:  h.Name,
				namespace: i.Key.Namespace, secret: entry.Secret, set: fmt.Sprintf("ingress-nginx-%d",
					n/maxListeners+1),
			}
			for number := 2; slices.ContainsFunc(t.secure, func(o secure) bool {
				return o.namespace == l.namespace && o.name == l.name
			}); number++ {
				l.name = fmt.Sprintf("%s-%d", limit(l.name, 56), number)
			}
			t.secure = append(t.secure, l)
			return &l
		}
	}
	return nil
}

// listenerSets returns the ListenerSets, each in the namespace of the Secrets that it refers to.
func (t *translator) listenerSets() (all []Object) {
	sets := make(map[cluster.Key][]any)
	for _, l := range t.secure {
		key := cluster.Key{Namespace: l.namespace, Name: l.set}
		sets[key] = append(sets[key], Object{
			"name": l.name, "hostname": l.hostname, "port": 443, "protocol": "HTTPS",
			"allowedRoutes": allNamespaces(),
			"tls":           Object{"mode": "Terminate", "certificateRefs": []any{Object{"name": l.secret}}},
		})
	}
	for _, key := range slices.SortedFunc(maps.Keys(sets), cluster.Key.Compare) {
		all = append(all, Object{
			"apiVersion": api, "kind": "ListenerSet", "metadata": meta(key), "spec": Object{
				"parentRef": Object{"name": t.cfg.Gateway.Name, "namespace": t.cfg.Gateway.Namespace},
				"listeners": sets[key],
			},
		})
	}
	return all
}

// parents returns the references to the listeners of a host: that for HTTP and that with TLS, if there is one.
func (t *translator) parents(h *host, which string) (refs []any) {
	if which != "tls" {
		refs = append(refs, Object{
			"name": t.cfg.Gateway.Name, "namespace": t.cfg.Gateway.Namespace, "sectionName": httpListener,
		})
	}
	if which != "http" && h.listener != nil {
		refs = append(refs, Object{
			"group": "gateway.networking.k8s.io", "kind": "ListenerSet", "name": h.listener.set,
			"namespace": h.listener.namespace, "sectionName": h.listener.name,
		})
	}
	return refs
}

// limit shortens a name.
func limit(name string, most int) string {
	if len(name) > most {
		name = name[:most]
	}
	return strings.TrimRight(name, "-.")
}

// policy makes the RoutePolicy of an Ingress, if it needs one.
func (t *translator) policy(s *source) {
	set := s.Settings
	spec := Object{}
	if set.Canary != nil || set.Denied != "" || len(s.routes) == 0 || tooLong(set) {
		return
	}
	prefixes(spec, "allow", set.Allow)
	prefixes(spec, "deny", set.Deny)
	if set.Body.Octets > 0 {
		spec["maxBodySize"] = set.Body.Octets
	}
	if b := set.Basic; b != nil && (b.Namespace == "" || b.Namespace == s.Key.Namespace) {
		format := "File"
		if b.Map {
			format = "Map"
		}
		basic := Object{"secretRef": Object{"name": b.Secret}, "format": format}
		if realmText.MatchString(b.Realm) {
			basic["realm"] = b.Realm
		} else if b.Realm != "" {
			s.note("auth-realm", annotation.Differs, "a RoutePolicy has at most 128 characters of ASCII")
		}
		spec["basicAuth"] = basic
	}
	if l := set.Limits; l != nil {
		if len(l.Except) > maxRanges {
			for _, name := range []string{"limit-allowlist", "limit-whitelist"} {
				s.noteIf(name, annotation.Differs, fmt.Sprintf(
					"a RoutePolicy has at most %d ranges of clients: the limit holds for the other ones", maxRanges))
			}
		}
		limits(spec, l)
	}
	for n := 0; len(spec) > 0 && n < len(s.routes); n += 16 {
		var targets []any
		for _, name := range s.routes[n:min(n+16, len(s.routes))] {
			targets = append(targets, Object{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": name})
		}
		one := maps.Clone(spec)
		one["targetRefs"] = targets
		key := s.Key
		if n > 0 {
			key.Name = fmt.Sprintf("%s-%d", limit(key.Name, 240), n/16+1)
		}
		t.policies = append(t.policies, Object{
			"apiVersion": "portolan.dev/v1alpha1", "kind": "RoutePolicy", "metadata": meta(key), "spec": one,
		})
	}
}

// tooLong reports whether no RoutePolicy can have all ranges of clients.
func tooLong(set *annotation.Settings) bool { return max(len(set.Allow), len(set.Deny)) > maxRanges }

// realmText is a realm that a RoutePolicy can have.
var realmText = regexp.MustCompile(`^[ -~]{1,128}$`)

// limits sets the limits of a RoutePolicy.
func limits(spec Object, l *annotation.Limits) {
	var rates []any
	rate := func(n int, per time.Duration) {
		if n > 0 {
			one := Object{"requests": min(n, maxCount), "per": per.String(), "burst": min(max(1, n*l.Burst), maxCount)}
			if per == time.Minute {
				one["per"] = "1m"
			}
			prefixes(one, "except", l.Except[:min(len(l.Except), maxRanges)])
			rates = append(rates, one)
		}
	}
	rate(l.PerSecond, time.Second)
	rate(l.PerMinute, time.Minute)
	if rates != nil {
		spec["rateLimits"] = rates
	}
	if l.Connections > 0 {
		one := Object{"max": min(l.Connections, maxCount)}
		prefixes(one, "except", l.Except[:min(len(l.Except), maxRanges)])
		spec["concurrentRequests"] = one
	}
}

// prefixes sets a list of ranges, if it has any.
func prefixes[T fmt.Stringer](spec Object, name string, all []T) {
	var texts []any
	for _, p := range all {
		texts = append(texts, p.String())
	}
	if texts != nil {
		spec[name] = texts
	}
}
