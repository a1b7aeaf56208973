// Package serviceenv computes the environment variables by which a Pod's
// containers find Services.
//
// It implements "Environment variables" of the page Services, and what that page
// leaves to the kubelet: which Services count (pkg/kubelet/kubelet_pods.go,
// getServiceEnvVarMap) and what the variables for Docker's links are
// (pkg/kubelet/envvars, makeLinkVariables), as of Kubernetes 1.36.
package serviceenv

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"strings"

	"portolan.dev/portolan/internal/cluster"
)

// Variable is one variable of an environment.
type Variable struct{ Name, Value string }

// String is the variable as a program finds it in its environment.
func (v Variable) String() string { return v.Name + "=" + v.Value }

// Environment is what the kubelet gives a Pod's containers for Services, unless
// a container sets a variable of the same name itself.
type Environment struct {
	// Variables are in order of their names.
	Variables []Variable
	// Clashes are the variables that two Services make with different values, in
	// order of their names.
	Conflicts []Conflict
	// Pending are the Services that would have variables if they had a cluster
	// IP, in order.
	Pending []cluster.Key
	// Master tells whether the Service of the API server is among those that
	// count: every Pod of a cluster has its variables.
	KubernetesService bool
}

// Clash is a variable that several Services make. The kubelet takes one by
// chance; here it is that of the last Service by name.
type Conflict struct {
	Name     string
	Services []cluster.Key // in order of their names
}

// master is the Service of the API server, which counts in every namespace.
var master = cluster.Key{Namespace: "default", Name: "kubernetes"}

// Of computes the environment of a Pod of a namespace, of which only
// NoServiceLinks counts. Every Service of v counts as there before the Pod.
func Compute(v *cluster.View, namespace string, pod *cluster.PodSpec) (e Environment) {
	counting := make(map[string]*cluster.Service) // by name: one of the Pod's namespace hides the master
	for s := range v.Services() {
		own := s.Namespace == namespace && !pod.NoServiceLinks
		if !own && s.Key != master {
			continue
		}
		if len(s.ClusterIPs) == 0 {
			if !s.Headless && s.ExternalName == "" {
				e.Pending = append(e.Pending, s.Key)
			}
			continue
		}
		if other := counting[s.Name]; other == nil || own {
			counting[s.Name] = s
		}
		e.KubernetesService = e.KubernetesService || s.Key == master
	}
	slices.SortFunc(e.Pending, cluster.Key.Compare)
	e.add(counting)
	return e
}

// add makes the variables of Services that count.
func (e *Environment) add(counting map[string]*cluster.Service) {
	type made struct {
		value string
		by    []cluster.Key
		clash bool
	}
	all := make(map[string]*made)
	services := make([]*cluster.Service, 0, len(counting))
	for _, s := range counting {
		services = append(services, s)
	}
	slices.SortFunc(services, func(a, b *cluster.Service) int { return cmp.Compare(a.Name, b.Name) })
	for _, s := range services {
		for _, v := range variables(s) {
			m := all[v.Name]
			if m == nil {
				m = &made{value: v.Value}
				all[v.Name] = m
			}
			m.clash = m.clash || m.value != v.Value
			m.value, m.by = v.Value, append(m.by, s.Key)
		}
	}
	for name, m := range all {
		e.Variables = append(e.Variables, Variable{name, m.value})
		if m.clash {
			e.Conflicts = append(e.Conflicts, Conflict{name, m.by})
		}
	}
	slices.SortFunc(e.Variables, func(a, b Variable) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(e.Conflicts, func(a, b Conflict) int { return cmp.Compare(a.Name, b.Name) })
}

// variables are those of one Service that has a cluster IP; of two the first
// counts.
func variables(s *cluster.Service) (all []Variable) {
	prefix, addr := variableName(s.Name), s.ClusterIPs[0].String()
	all = append(all, Variable{prefix + "_SERVICE_HOST", addr})
	for i, p := range s.Ports {
		number, proto := strconv.Itoa(int(p.Number)), strings.ToLower(string(p.Protocol))
		url := proto + "://" + net.JoinHostPort(addr, number)
		if i == 0 {
			all = append(all, Variable{prefix + "_SERVICE_PORT", number}, Variable{prefix + "_PORT", url})
		}
		if p.Name != "" {
			all = append(all, Variable{prefix + "_SERVICE_PORT_" + variableName(p.Name), number})
		}
		link := prefix + "_PORT_" + number + "_" + strings.ToUpper(proto)
		all = append(all,
			Variable{link, url},
			Variable{link + "_PROTO", proto},
			Variable{link + "_PORT", number},
			Variable{link + "_ADDR", addr})
	}
	return all
}

// variableName is a name of the API as variables have it. It may begin with a
// digit, which shells don't take for a name; programs do.
func variableName(name string) string {
	return strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// Limit is what the arguments and the environment of a program may take on
// Linux, in octets: a quarter of the limit of its stack, which is 8 MiB where
// nobody set it (execve(2), "Limits on size of arguments and environment"). No
// variable of a Service comes near the limit of a single string, 128 KiB.
const Limit = 2 << 20

// Tight is from which Size on there is a danger: half of the limit is for the
// arguments, and for what else is in the environment.
const WarnSize = Limit / 2

// Size is what the variables take of Limit, in octets: each with the NUL behind
// it and a pointer to it.
func (e *Environment) Size() (n int) {
	const pointer = 8
	for _, v := range e.Variables {
		n += len(v.Name) + len("=") + len(v.Value) + len("\x00") + pointer
	}
	return n
}
