package lint

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
)

// mostSteps is how many aliases are followed to find that they lead back.
const mostSteps = 16

const externalField = "spec.externalName"

// external judges an ExternalName Service.
func (j *reporter) external(s *cluster.Service) {
	if len(s.Selector) > 0 {
		j.add(ExternalNameSelector, "spec.selector", "leave out the selector, or the type ExternalName",
			"a Service of type ExternalName has no endpoints: its selector has no effect")
	}
	target := canonical(s.ExternalName)
	if _, err := netip.ParseAddr(target); err == nil {
		j.add(ExternalNameAddress, externalField, "make it headless (clusterIP: None) without selector, and give it an EndpointSlice with the address",
			"%s is an address, and an ExternalName is a name: the Service's name does not resolve", target)
		return
	}
	if inside, ok := j.inside(target); ok {
		j.externalInside(s, target, inside)
		return
	}
	j.externalRelative(s, target)
}

// canonical is a name in small letters, without closing dot.
func canonical(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// inside are the labels of a name before the cluster domain that it ends with.
func (c *Linter) inside(name string) (labels []string, ok bool) {
	for _, domain := range c.Domains {
		if name == domain {
			return nil, true
		}
		if before, ok := strings.CutSuffix(name, "."+domain); ok {
			return strings.Split(before, "."), true
		}
	}
	return nil, false
}

// serviceAt is the Service that the labels of a name under the cluster domain
// name, or an endpoint or port of it.
func serviceAt(labels []string) (cluster.Key, bool) {
	n := len(labels)
	if n < 3 || n > 5 || labels[n-1] != "svc" {
		return cluster.Key{}, false
	}
	return cluster.Key{Namespace: labels[n-2], Name: labels[n-3]}, true
}

// externalInside: a target in the cluster must be there.
func (j *reporter) externalInside(s *cluster.Service, target string, labels []string) {
	if !j.loaded(cluster.KindService, cluster.KindNamespace) || slices.Contains([]string{"pod", "dns", "dns-version"}, last(labels)) {
		return
	}
	key, ok := serviceAt(labels)
	if !ok {
		j.add(ExternalNameMissingService, externalField, "write SERVICE.NAMESPACE.svc."+j.domain(),
			"%s is under the cluster's domain, and no Service has such a name: the Service's name does not resolve", target)
		return
	}
	switch {
	case j.View.Service(key) != nil:
		j.loop(s)
	case j.View.Namespace(key.Namespace) == nil:
		j.addAs(Warning, ExternalNameMissingService, externalField, "name a Service that is there",
			"there is no Namespace %s, so that %s does not resolve", key.Namespace, target)
	default:
		near := j.indexed().nearestService(key.Namespace, key.Name)
		j.add(ExternalNameMissingService, externalField, "name a Service that is there",
			"there is no Service %s%s, so that %s does not resolve", key, mean(near), target)
	}
}

// last is the last of the labels; "" of none.
func last(labels []string) string {
	if len(labels) == 0 {
		return ""
	}
	return labels[len(labels)-1]
}

// loop: aliases must not lead back to one before.
func (j *reporter) loop(s *cluster.Service) {
	chain := []string{s.Key.String()}
	for at := s; len(chain) <= mostSteps; {
		labels, _ := j.inside(canonical(at.ExternalName))
		key, ok := serviceAt(labels)
		if !ok {
			return
		}
		if at = j.View.Service(key); at == nil || at.ExternalName == "" {
			return
		}
		again := slices.Contains(chain, key.String())
		chain = append(chain, key.String())
		if again {
			break
		}
	}
	j.add(ExternalNameLoop, externalField, "let one of them name what is really meant",
		"it leads in a circle: %s", strings.Join(chain, " → "))
}

// externalRelative: a target is a whole name; nobody searches it.
func (j *reporter) externalRelative(s *cluster.Service, target string) {
	labels := strings.Split(target, ".")
	whole := ""
	switch {
	case len(labels) == 1:
		whole = target + "." + s.Namespace
		if j.View.Service(cluster.Key{Namespace: s.Namespace, Name: target}) == nil {
			j.add(ExternalNameUnqualified, externalField, "write the whole name, such as "+target+".example.com",
				"%s is a name of one label, which is taken as it is, and not searched: it does not resolve", target)
			return
		}
	case len(labels) == 3 && labels[2] == "svc":
		whole = labels[0] + "." + labels[1]
	case len(labels) == 2 && j.View.Service(cluster.Key{Namespace: labels[1], Name: labels[0]}) != nil:
		whole = target
	default:
		return
	}
	j.add(ExternalNameUnqualified, externalField, fmt.Sprintf("write %s.svc.%s", whole, j.domain()),
		"%s is taken as it is, and not searched: it is no name of the cluster, and does not resolve", target)
}
