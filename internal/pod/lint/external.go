package lint

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
)

// mostSteps is the maximum number of aliases that the search for a loop follows.
const mostSteps = 16

const externalField = "spec.externalName"

// external checks an ExternalName Service.
func (j *reporter) external(s *cluster.Service) {
	if len(s.Selector) > 0 {
		j.add(ExternalNameSelector, "spec.selector", "remove the selector, or the type ExternalName",
			"a Service of type ExternalName has no endpoints: its selector has no effect")
	}
	target := canonical(s.ExternalName)
	if _, err := netip.ParseAddr(target); err == nil {
		j.add(ExternalNameAddress, externalField,
			"use a headless Service (clusterIP: None) without a selector, and an EndpointSlice with the address",
			"%s is an IP address, and an ExternalName must be a DNS name: the Service's name does not resolve", target)
		return
	}
	if labels, ok := j.cutDomain(target); ok {
		j.externalInCluster(s, target, labels)
		return
	}
	j.externalUnqualified(s, target)
}

// canonical returns a name in lower case, without a trailing dot.
func canonical(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// cutDomain returns the labels of a name before the cluster domain, and reports
// whether the name is in a cluster domain.
func (c *Linter) cutDomain(name string) (labels []string, ok bool) {
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

// serviceOf returns the Service for the labels of a name below the cluster domain:
// the name of a Service, of one of its endpoints or of one of its ports.
func serviceOf(labels []string) (cluster.Key, bool) {
	n := len(labels)
	if n < 3 || n > 5 || labels[n-1] != "svc" {
		return cluster.Key{}, false
	}
	return cluster.Key{Namespace: labels[n-2], Name: labels[n-3]}, true
}

// externalInCluster checks that a target in the cluster domain exists.
func (j *reporter) externalInCluster(s *cluster.Service, target string, labels []string) {
	if !j.loaded(cluster.KindService, cluster.KindNamespace) ||
		slices.Contains([]string{"pod", "dns", "dns-version"}, last(labels)) {
		return
	}
	key, ok := serviceOf(labels)
	if !ok {
		j.add(ExternalNameMissingService, externalField, "write SERVICE.NAMESPACE.svc."+j.domain(),
			"%s is in the cluster domain, and is not the name of a Service: the Service's name does not resolve", target)
		return
	}
	switch {
	case j.View.Service(key) != nil:
		j.loop(s)
	case j.View.Namespace(key.Namespace) == nil:
		j.addAs(Warning, ExternalNameMissingService, externalField, "name an existing Service",
			"namespace %s does not exist, so %s does not resolve", key.Namespace, target)
	default:
		near, cure := j.indexed().similarService(key.Namespace, key.Name), "name an existing Service"
		if near != "" {
			cure += fmt.Sprintf(", such as %s.%s.svc.%s", near, key.Namespace, j.domain())
		}
		j.add(ExternalNameMissingService, externalField, cure,
			"Service %s does not exist%s, so %s does not resolve", key, didYouMean(near), target)
	}
}

// last returns the last label, or "" if there is none.
func last(labels []string) string {
	if len(labels) == 0 {
		return ""
	}
	return labels[len(labels)-1]
}

// loop checks that a chain of ExternalName Services ends.
func (j *reporter) loop(s *cluster.Service) {
	chain := []string{s.String()}
	for at := s; len(chain) <= mostSteps; {
		labels, _ := j.cutDomain(canonical(at.ExternalName))
		key, ok := serviceOf(labels)
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
	j.add(ExternalNameLoop, externalField, "point one of them to the Service that is meant",
		"ExternalName Services form a loop: %s", strings.Join(chain, " → "))
}

// externalUnqualified checks that a target outside the cluster domain is not the
// short name of a Service, and not a single label.
func (j *reporter) externalUnqualified(s *cluster.Service, target string) {
	labels := strings.Split(target, ".")
	var shortName string
	switch {
	case len(labels) == 1:
		shortName = target + "." + s.Namespace
		if j.View.Service(cluster.Key{Namespace: s.Namespace, Name: target}) == nil {
			j.add(ExternalNameUnqualified, externalField, "write the fully qualified name, such as "+target+".example.com",
				"%s has a single label, and resolvers do not apply the search list to it: it does not resolve", target)
			return
		}
	case len(labels) == 3 && labels[2] == "svc":
		shortName = labels[0] + "." + labels[1]
	case len(labels) == 2 && j.View.Service(cluster.Key{Namespace: labels[1], Name: labels[0]}) != nil:
		shortName = target
	default:
		return
	}
	j.add(ExternalNameUnqualified, externalField, fmt.Sprintf("write %s.svc.%s", shortName, j.domain()),
		"%s is not fully qualified, and resolvers do not apply the search list to it: it does not resolve", target)
}
