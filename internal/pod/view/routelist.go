package view

import (
	"cmp"
	"slices"
	"strconv"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/pod/request"
)

// listenersOf returns the listeners that serve a route.
func listenersOf(w *request.World, r *cluster.Route) []RouteListener {
	all := []RouteListener{}
	attached := w.AttachedTo(r)
	for i := range attached[:min(len(attached), mostListeners)] {
		a := &attached[i]
		all = append(all, RouteListener{
			Kind: a.Owner.Kind.String(), Namespace: a.Owner.Key.Namespace, Name: a.Owner.Key.Name, Listener: a.Name,
			Port: a.Port, Protocol: string(a.Protocol),
		})
	}
	return all
}

// ingressListeners returns the ports at which an Ingress is served; none if it is another controller's.
func ingressListeners(f *cluster.Frontend, listed *request.Ingress) []RouteListener {
	all := []RouteListener{}
	if !listed.Served {
		return all
	}
	for i, port := range listed.Ports {
		protocol := cluster.HTTPProtocol
		if i > 0 {
			protocol = cluster.HTTPSProtocol
		}
		all = append(all, RouteListener{
			Kind: cluster.KindIngressClass.String(), Name: cmp.Or(f.Ingress.Class, f.Ingress.OldClass), Port: port,
			Protocol: string(protocol),
		})
	}
	return all
}

// backendsOf returns the Services that the rules of a route name.
func backendsOf(r *cluster.Route) []RouteBackend {
	all := []RouteBackend{}
	for i := range r.Spec.Rules {
		for k := range r.Spec.Rules[i].Backends {
			ref := &r.Spec.Rules[i].Backends[k].BackendRef
			if key, ok := ref.Core(cluster.KindService); ok {
				all = with(all, key, ref.Port, "")
			}
		}
	}
	return all
}

// ingressBackends returns the Services that the paths of an Ingress name.
func ingressBackends(f *cluster.Frontend) []RouteBackend {
	all := []RouteBackend{}
	for i := range f.Backends {
		if b := &f.Backends[i]; b.Service != "" {
			all = with(all, cluster.Key{Namespace: f.Namespace, Name: b.Service}, b.Number, b.Port)
		}
	}
	return all
}

// with appends a port of a Service, which has a number or a name, unless it is there or the list is long.
func with(all []RouteBackend, key cluster.Key, number uint16, name string) []RouteBackend {
	made := RouteBackend{Namespace: key.Namespace, Name: key.Name, Port: name}
	if name == "" && number != 0 {
		made.Port = strconv.Itoa(int(number))
	}
	if len(all) >= mostListeners || slices.Contains(all, made) {
		return all
	}
	return append(all, made)
}
