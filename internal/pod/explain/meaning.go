package explain

import (
	"strings"

	"portolan.dev/portolan/internal/cluster"
)

// meaning is the Service, endpoint or port that a name in a cluster domain stands for
// (Kubernetes DNS-Based Service Discovery 1.1.0, sections 2.3 to 2.5).
type meaning struct {
	service cluster.Key
	// host is the hostname of an endpoint: the label before the Service's name.
	host string
	// port and protocol are those of the name of an SRV record, without underscores.
	port, protocol string
}

// meaningOf parses a name, and reports whether it has the form of a Service's name in one
// of the domains.
func meaningOf(name string, domains []string) (m meaning, ok bool) {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	for _, domain := range domains {
		rest, within := strings.CutSuffix(name, ".svc."+strings.ToLower(domain))
		if !within {
			continue
		}
		labels := strings.Split(rest, ".")
		if len(labels) < 2 {
			continue
		}
		last := len(labels) - 1
		m.service = cluster.Key{Namespace: labels[last], Name: labels[last-1]}
		switch before := labels[:last-1]; {
		case len(before) == 0:
			return m, true
		case len(before) == 1 && !strings.HasPrefix(before[0], "_"):
			m.host = before[0]
			return m, true
		case len(before) == 2 && strings.HasPrefix(before[0], "_") && strings.HasPrefix(before[1], "_"):
			m.port, m.protocol = before[0][1:], before[1][1:]
			return m, true
		}
	}
	return meaning{}, false
}

// ServiceOf returns the Service that a fully qualified name stands for, and reports whether the
// name is that of a Service in one of the domains.
func ServiceOf(name string, domains []string) (cluster.Key, bool) {
	m, ok := meaningOf(name, domains)
	return m.service, ok
}
