package route

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// step changes one object of a device.
type step struct {
	device string
	// request makes the request, given the device's index.
	request func(device int) request
}

// difference is what leads from what the kernel has to what it should have, in the order in which it is executed:
// what a route needs comes before it.
type difference struct {
	forward, neighbor, route, gone []step
	// refuse makes ranges unreachable, and admit undoes that.
	refuse, admit []request
}

// fateOf returns what becomes of an object that was and shall be something; ok is false if nothing changes.
func fateOf[V comparable](was, is V) (f fate, ok bool) {
	var none V
	switch {
	case was == is:
		return 0, false
	case is == none:
		return remove, true
	case was == none:
		return create, true
	}
	return replace, true
}

// routes adds the change of a route.
func (d *difference) routes(was, is Route) {
	switch f, ok := fateOf(was, is); {
	case !ok:
	case f == remove:
		d.removeRoute(was, 0)
	default:
		d.route = append(d.route, step{is.Device, func(i int) request { return routeRequest(is, i, 0, f) }})
	}
}

// removeRoute adds the removal of a route; one of priority 0 has the kernel's.
func (d *difference) removeRoute(r Route, priority int) {
	d.gone = append(d.gone, step{r.Device, func(i int) request { return routeRequest(r, i, priority, remove) }})
}

func (d *difference) neighbors(was, is Neighbor) {
	switch f, ok := fateOf(was, is); {
	case !ok:
	case f == remove:
		d.gone = append(d.gone, step{was.Device, func(i int) request { return neighborRequest(was, i, remove) }})
	default: // the kernel may have learned it
		d.neighbor = append(d.neighbor, step{is.Device, func(i int) request { return neighborRequest(is, i, replace) }})
	}
}

func (d *difference) forwards(was, is Forward) {
	switch f, ok := fateOf(was, is); {
	case !ok:
	case f == remove:
		d.gone = append(d.gone, step{was.Device, func(i int) request { return forwardRequest(was, i, remove) }})
	default:
		d.forward = append(d.forward, step{is.Device, func(i int) request { return forwardRequest(is, i, replace) }})
	}
}

func (d *difference) unreachable(to netip.Prefix, was, is bool) {
	switch f, ok := fateOf(was, is); {
	case !ok:
	case f == remove:
		d.admit = append(d.admit, unreachableRequest(to, unreachablePriority, remove))
	default:
		d.refuse = append(d.refuse, unreachableRequest(to, unreachablePriority, f))
	}
}

// execute executes the steps, in the order of the fields. Those of devices that are not there are in the error.
func (r *Router) execute(d *difference) error {
	all := slices.Clone(d.refuse)
	absent := make(map[string]error)
	for _, s := range slices.Concat(d.forward, d.neighbor, d.route) {
		index, ok := r.links[s.device]
		if !ok {
			absent[s.device] = fmt.Errorf("device %s: there is none, or it is down", s.device)
			continue
		}
		all = append(all, s.request(index))
	}
	for _, s := range d.gone {
		if index, ok := r.links[s.device]; ok { // else it went with the device
			all = append(all, s.request(index))
		}
	}
	errs := []error{r.socket.execute(append(all, d.admit...))}
	for _, device := range slices.Sorted(maps.Keys(absent)) {
		errs = append(errs, absent[device])
	}
	return errors.Join(errs...)
}
