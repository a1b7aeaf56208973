package cluster

import "iter"

// routeTables are those of the kinds of routes, by kind.
var routeTables = map[Kind]*Table[*Route]{
	KindHTTPRoute: HTTPRoutes, KindGRPCRoute: GRPCRoutes, KindTLSRoute: TLSRoutes, KindTCPRoute: TCPRoutes,
	KindUDPRoute: UDPRoutes,
}

// Routes yields the Routes of all kinds, kind by kind.
func Routes(v *View) iter.Seq[*Route] {
	return func(yield func(*Route) bool) {
		for _, k := range RouteKinds() {
			for r := range routeTables[k].All(v) {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// RouteOf returns a Route of any kind; nil if it does not exist, or the kind is none of RouteKinds.
func RouteOf(v *View, of Ref) *Route {
	t := routeTables[of.Kind]
	if t == nil {
		return nil
	}
	return t.Get(v, of.Key)
}

// RouteIndex finds Routes of all kinds.
type RouteIndex struct{ kinds []*Index[*Route, ObjectRef] }

// declareRouteIndex adds an index by what the specs of routes refer to.
func declareRouteIndex(keysOf func(s *RouteSpec, keys []ObjectRef) []ObjectRef) *RouteIndex {
	x := new(RouteIndex)
	for _, t := range []*Table[*Route]{HTTPRoutes, GRPCRoutes, TLSRoutes, TCPRoutes, UDPRoutes} {
		x.kinds = append(x.kinds, declareIndex(t, func(r *Route, keys []ObjectRef) []ObjectRef {
			return keysOf(r.Spec, keys)
		}))
	}
	return x
}

// Get yields the Routes at k, kind by kind, those of a kind sorted by their keys.
func (x *RouteIndex) Get(v *View, k ObjectRef) iter.Seq[*Route] {
	return func(yield func(*Route) bool) {
		for _, of := range x.kinds {
			for _, r := range of.Get(v, k) {
				if !yield(r) {
					return
				}
			}
		}
	}
}
