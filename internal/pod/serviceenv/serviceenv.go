// Package serviceenv computes the environment variables with the addresses of Services
// that the kubelet sets in the containers of a Pod.
//
// It implements "Environment variables" of the page Services of the Kubernetes
// documentation, and what that page leaves to the kubelet: which Services get variables
// (pkg/kubelet/kubelet_pods.go, getServiceEnvVarMap) and the variables in the form of
// Docker links (pkg/kubelet/envvars, makeLinkVariables), as of Kubernetes 1.36.
package serviceenv

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"strings"

	"portolan.dev/portolan/internal/cluster"
)

// Variable is an environment variable.
type Variable struct{ Name, Value string }

// String returns the variable in the form NAME=VALUE.
func (v Variable) String() string { return v.Name + "=" + v.Value }

// Environment has the variables for Services that the kubelet sets in the containers of a
// Pod, unless a container sets a variable of the same name itself.
type Environment struct {
	// Variables are ordered by name.
	Variables []Variable
	// Conflicts are the variables for which two Services have different values, ordered
	// by name.
	Conflicts []Conflict
	// Pending are the Services that get variables when they get a cluster IP, ordered by
	// key.
	Pending []cluster.Key
	// KubernetesService reports whether the variables of the Service default/kubernetes,
	// which every Pod of a cluster has, are among Variables.
	KubernetesService bool
}

// Conflict is a variable for which several Services have different values. The kubelet
// uses a random one; Compute uses the one of the last Service by name.
type Conflict struct {
	Name     string
	Services []cluster.Key // ordered by name
}

// kubernetesService is the Service of the API server, whose variables Pods of every
// namespace get.
var kubernetesService = cluster.Key{Namespace: "default", Name: "kubernetes"}

// Compute returns the environment of a Pod in a namespace. Of the PodSpec it uses only
// NoServiceLinks. It assumes that all Services of v existed before the Pod was created.
func Compute(v *cluster.View, namespace string, pod *cluster.PodSpec) (e Environment) {
	selected := make(map[string]*cluster.Service) // by name: a Service of the Pod's namespace wins
	for s := range v.Services() {
		own := s.Namespace == namespace && !pod.NoServiceLinks
		if !own && s.Key != kubernetesService {
			continue
		}
		if len(s.ClusterIPs) == 0 {
			if !s.Headless && s.ExternalName == "" {
				e.Pending = append(e.Pending, s.Key)
			}
			continue
		}
		if other := selected[s.Name]; other == nil || own {
			selected[s.Name] = s
		}
		e.KubernetesService = e.KubernetesService || s.Key == kubernetesService
	}
	slices.SortFunc(e.Pending, cluster.Key.Compare)
	e.addVariables(selected)
	return e
}

// addVariables adds the variables of the Services.
func (e *Environment) addVariables(selected map[string]*cluster.Service) {
	type variable struct {
		value    string
		services []cluster.Key
		conflict bool
	}
	all := make(map[string]*variable)
	services := make([]*cluster.Service, 0, len(selected))
	for _, s := range selected {
		services = append(services, s)
	}
	slices.SortFunc(services, func(a, b *cluster.Service) int { return cmp.Compare(a.Name, b.Name) })
	for _, s := range services {
		for _, v := range variables(s) {
			m := all[v.Name]
			if m == nil {
				m = &variable{value: v.Value}
				all[v.Name] = m
			}
			m.conflict = m.conflict || m.value != v.Value
			m.value, m.services = v.Value, append(m.services, s.Key)
		}
	}
	for name, m := range all {
		e.Variables = append(e.Variables, Variable{name, m.value})
		if m.conflict {
			e.Conflicts = append(e.Conflicts, Conflict{name, m.services})
		}
	}
	slices.SortFunc(e.Variables, func(a, b Variable) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(e.Conflicts, func(a, b Conflict) int { return cmp.Compare(a.Name, b.Name) })
}

// variables returns the variables of a Service for its first cluster IP.
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

// variableName returns the name of an object or port in the form of variables. It may
// begin with a digit, which is not a valid name in shells.
func variableName(name string) string {
	return strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// Limit is the maximum size of the arguments and the environment of a program on Linux,
// in octets: a quarter of the stack limit, which is 8 MiB by default (execve(2), "Limits
// on size of arguments and environment"). The variables of Services are far below the
// limit of a single string, 128 KiB.
const Limit = 2 << 20

// WarnSize is the Size from which a program may fail to start: half of the limit is left
// for the arguments and for other variables.
const WarnSize = Limit / 2

// Size returns the part of Limit that the variables use, in octets, including a NUL and a
// pointer for each.
func (e *Environment) Size() (n int) {
	const pointer = 8
	for _, v := range e.Variables {
		n += len(v.Name) + len("=") + len(v.Value) + len("\x00") + pointer
	}
	return n
}
