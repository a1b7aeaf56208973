package diff

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"portolan.dev/portolan/internal/cluster"
)

// protocols are those whose ports policies name, and last the one that stands for all others, which
// have no ports.
var protocols = [...]cluster.Protocol{cluster.TCP, cluster.UDP, cluster.SCTP, "other"}

const (
	others   = len(protocols) - 1
	lastPort = 65535
)

// Ports are ports of a protocol from First to Last; 1 to 65535 is the whole protocol. The protocol
// "other" stands for all without ports, such as ICMP; its First and Last are 0.
type Ports struct {
	Protocol cluster.Protocol `json:"protocol"`
	First    uint16           `json:"first"`
	Last     uint16           `json:"last"`
}

// portSet is a set of ports: by protocol intervals in ascending order that do not touch.
type portSet [len(protocols)][]interval

type interval struct{ first, last uint16 }

// whole returns the interval of all ports of a protocol.
func whole(protocol int) interval {
	if protocol == others {
		return interval{}
	}
	return interval{1, lastPort}
}

// every returns the set of all ports.
func every() (s portSet) {
	for p := range s {
		s[p] = []interval{whole(p)}
	}
	return s
}

func (s *portSet) empty() bool {
	return !slices.ContainsFunc(s[:], func(of []interval) bool { return len(of) > 0 })
}

// add adds an interval after all others of its protocol.
func (s *portSet) add(protocol int, of interval) {
	own := s[protocol]
	if n := len(own); n > 0 && int(own[n-1].last)+1 >= int(of.first) {
		own[n-1].last = max(own[n-1].last, of.last)
		return
	}
	s[protocol] = append(own, of)
}

// and returns the ports that are in both sets.
func (s *portSet) and(o *portSet) (both portSet) {
	for p := range s {
		for i, j := 0, 0; i < len(s[p]) && j < len(o[p]); {
			a, b := s[p][i], o[p][j]
			if common := (interval{max(a.first, b.first), min(a.last, b.last)}); common.first <= common.last {
				both.add(p, common)
			}
			if a.last < b.last {
				i++
			} else {
				j++
			}
		}
	}
	return both
}

// not returns the ports that are not in the set.
func (s *portSet) not() (rest portSet) {
	for p := range s {
		if p == others {
			if len(s[p]) == 0 {
				rest[p] = []interval{whole(p)}
			}
			continue
		}
		next := 1
		for _, of := range s[p] {
			if int(of.first) > next {
				rest.add(p, interval{uint16(next), of.first - 1})
			}
			next = int(of.last) + 1
		}
		if next <= lastPort {
			rest.add(p, interval{uint16(next), lastPort})
		}
	}
	return rest
}

// first returns one port of the set.
func (s *portSet) first() cluster.Port {
	for p := range s {
		if len(s[p]) > 0 {
			return cluster.Port{Protocol: protocols[p], Number: s[p][0].first}
		}
	}
	return cluster.Port{}
}

// key returns a text that only equal sets have.
func (s *portSet) key() string {
	var b strings.Builder
	for p := range s {
		for _, of := range s[p] {
			fmt.Fprintf(&b, "%d:%d-%d,", p, of.first, of.last)
		}
	}
	return b.String()
}

// list returns the set for output.
func (s *portSet) list() (all []Ports) {
	for p := range s {
		for _, of := range s[p] {
			all = append(all, Ports{protocols[p], of.first, of.last})
		}
	}
	return all
}

// text returns the set for people: what is in it or, if that is shorter, what is not.
func (s *portSet) text() string {
	rest := s.not()
	in, out := s.list(), rest.list()
	switch {
	case len(out) == 0:
		return "all ports"
	case len(out) < len(in):
		return "all ports but " + joinPorts(out)
	}
	return joinPorts(in)
}

func joinPorts(all []Ports) string {
	var texts []string
	for _, p := range all {
		switch {
		case p.Protocol == protocols[others]:
			texts = append(texts, "other protocols")
		case p.First == 1 && p.Last == lastPort:
			texts = append(texts, string(p.Protocol))
		case p.First == p.Last:
			texts = append(texts, string(p.Protocol)+" "+strconv.Itoa(int(p.First)))
		default:
			texts = append(texts, fmt.Sprintf("%s %d-%d", p.Protocol, p.First, p.Last))
		}
	}
	return strings.Join(texts, ", ")
}

// cuts are where the verdicts of some policies may change, by protocol: the first ports of intervals.
type cuts [others]map[int]bool

// cut adds the ends of an interval.
func (c *cuts) cut(protocol cluster.Protocol, first, last int) {
	for p := range others {
		if protocol != "" && protocols[p] != protocol {
			continue
		}
		if c[p] == nil {
			c[p] = map[int]bool{1: true}
		}
		c[p][first], c[p][last+1] = true, true
	}
}

// addRule adds the ports of a rule. Named ports are those of the ends that may have them.
func (c *cuts) addRule(ports []cluster.PolicyPort, named map[string][]cluster.Port) {
	for _, port := range ports {
		switch {
		case port.Name != "":
			for _, own := range named[port.Name] {
				c.cut(own.Protocol, int(own.Number), int(own.Number))
			}
		case port.Number != 0:
			c.cut(port.Protocol, int(port.Number), int(port.End))
		}
	}
}

// intervals returns the intervals of a protocol, in ascending order.
func (c *cuts) intervals(protocol int) (all []interval) {
	if protocol == others || len(c[protocol]) == 0 {
		return []interval{whole(protocol)}
	}
	var starts []int
	for at := range c[protocol] {
		if at <= lastPort {
			starts = append(starts, at)
		}
	}
	slices.Sort(starts)
	for i, at := range starts {
		end := lastPort
		if i+1 < len(starts) {
			end = starts[i+1] - 1
		}
		all = append(all, interval{uint16(at), uint16(end)})
	}
	return all
}
