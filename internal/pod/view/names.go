package view

import (
	"strconv"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// Name is what the cluster's DNS answers for a name and a type.
type Name struct {
	Name string   `json:"name"`
	Type string   `json:"type"`
	TTL  uint32   `json:"ttl"`
	Data []string `json:"data"`
}

// namesOf returns the records of a Service: of its name in each domain, of its ports that have names,
// and of the names that it is to have outside.
func (m *Model) namesOf(s *cluster.Service, more *More) []Name {
	var all []Name
	ask := func(name string, types ...dnswire.Type) {
		for _, t := range types {
			all = append(all, m.ask(name, t, more)...)
		}
	}
	for _, domain := range m.Linter.Domains {
		name := s.Name + "." + s.Namespace + ".svc." + domain + "."
		if s.ExternalName != "" {
			ask(name, dnswire.TypeCNAME)
			continue
		}
		ask(name, dnswire.TypeA, dnswire.TypeAAAA)
		for _, p := range s.Ports {
			if p.Name != "" {
				ask("_"+p.Name+"._"+protocolLabels[p.Protocol]+"."+name, dnswire.TypeSRV)
			}
		}
	}
	if s.External != nil {
		for _, host := range s.External.Hosts {
			ask(host+".", dnswire.TypeA, dnswire.TypeAAAA)
		}
	}
	return cut(more, "names", all, mostNames)
}

// protocolLabels are those of SRV records (RFC 2782).
var protocolLabels = map[cluster.Protocol]string{
	cluster.TCP: "tcp", cluster.UDP: "udp", cluster.SCTP: "sctp",
}

// ask returns the records of a name and a type, nil if there are none. Of records that are reached
// through aliases it returns those, too.
func (m *Model) ask(name string, t dnswire.Type, more *More) (all []Name) {
	for _, r := range m.Ask(name, t) {
		n := len(all) - 1
		if n < 0 || all[n].Name != r.Name || all[n].Type != r.Type {
			all, n = append(all, Name{Name: r.Name, Type: r.Type, TTL: r.TTL}), n+1
		}
		all[n].Data = append(all[n].Data, r.Data)
	}
	for i := range all {
		all[i].Data = cut(more, "data", all[i].Data, mostRecords)
	}
	return all
}

// portText returns a port as in "http 80/TCP".
func portText(name string, number uint16, protocol cluster.Protocol) string {
	text := strconv.Itoa(int(number)) + "/" + string(protocol)
	if number == 0 {
		text = "all ports/" + string(protocol)
	}
	if name != "" {
		text = name + " " + text
	}
	return text
}
