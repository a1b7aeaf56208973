package route

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// sync has the kernel have what is wanted, and returns how many objects it changed. What fails is repeated by Run.
func (r *Router) sync() (changed int, err error) {
	r.synced = false
	defer func() {
		if r.synced = err == nil; !r.synced {
			notify(r.damaged)
		}
	}()
	failed := []error{r.setSysctls()}
	changed, err = r.syncDevices()
	failed = append(failed, err)
	if err := r.readLinks(); err != nil {
		return changed, err
	}
	have, err := r.read()
	if err != nil {
		return changed, err
	}
	unreachable, err := r.syncUnreachable() // first: what a route no longer leads to must not follow the default route
	failed = append(failed, err)
	d := r.compare(have)
	failed = append(failed, r.execute(d))
	rules, err := r.syncRules()
	failed = append(failed, err)
	changed += rules + unreachable + len(d.forward) + len(d.neighbor) + len(d.route) + len(d.gone)
	return changed, errors.Join(failed...)
}

// readLinks reads the indexes of the devices that are up and have routes or are those of tunnels.
func (r *Router) readLinks() error {
	names := make(map[string]bool)
	for _, d := range r.want.local.Devices {
		names[d.Name] = true
	}
	for _, route := range r.want.routes {
		names[route.Device] = true
	}
	r.links = make(map[string]int, len(names))
	for name := range names {
		link, err := r.link(name)
		if err != nil {
			return err
		}
		if link != nil && link.Attrs().Flags&net.FlagUp != 0 {
			r.links[name] = link.Attrs().Index
		}
	}
	return nil
}

// link returns the device with a name, or nil if there is none.
func (r *Router) link(name string) (netlink.Link, error) {
	link, err := r.handle.LinkByName(name)
	if none := (netlink.LinkNotFoundError{}); errors.As(err, &none) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", name, err)
	}
	return link, nil
}

// kernel is what the kernel has that is the Router's.
type kernel struct {
	routes    map[routeKey]Route
	neighbors map[neighborKey]Neighbor
	forwards  map[Forward]bool
	// strays are routes that the Router would not make: of another priority.
	strays []stray
}

type stray struct {
	Route
	priority int
}

// compare returns what leads from what the kernel has to what is wanted. Routes of devices that are down wait: the
// kernel refuses them.
func (r *Router) compare(have *kernel) *difference {
	d := new(difference)
	for _, s := range have.strays {
		d.removeRoute(s.Route, s.priority)
	}
	for k, is := range r.want.routes {
		was, has := have.routes[k]
		switch _, up := r.links[is.Device]; {
		case up:
			d.routes(was, is)
		case has && was.Device != is.Device: // such as one that would lead past a tunnel
			d.removeRoute(was, 0)
		}
		delete(have.routes, k)
	}
	for k, is := range r.want.neighbors {
		d.neighbors(have.neighbors[k], is)
		delete(have.neighbors, k)
	}
	for _, is := range r.want.forwards {
		if !have.forwards[is] {
			d.forwards(Forward{}, is)
		}
		delete(have.forwards, is)
	}
	for _, was := range have.routes {
		d.removeRoute(was, 0)
	}
	for _, was := range have.neighbors {
		d.neighbors(was, Neighbor{})
	}
	for was := range have.forwards {
		d.forwards(was, Forward{})
	}
	return d
}

// maxReads is how often a list is read until it does not change meanwhile.
const maxReads = 20

// listed calls list until what it lists does not change meanwhile.
func listed[T any](list func() ([]T, error)) (all []T, err error) {
	for range maxReads {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return all, err
}

// read reads what the kernel has.
func (r *Router) read() (*kernel, error) {
	k := &kernel{
		routes: make(map[routeKey]Route), neighbors: make(map[neighborKey]Neighbor), forwards: make(map[Forward]bool),
	}
	if err := r.readRoutes(k); err != nil {
		return nil, fmt.Errorf("reading routes: %w", err)
	}
	for _, d := range r.want.local.Devices {
		index, ok := r.links[d.Name]
		if !ok {
			continue
		}
		if err := r.readNeighbors(k, d.Name, index); err != nil {
			return nil, fmt.Errorf("reading neighbors of device %s: %w", d.Name, err)
		}
	}
	return k, nil
}

// readRoutes reads the routes with the protocol and a next hop.
func (r *Router) readRoutes(k *kernel) error {
	names := make(map[int]string)
	all, err := routesOf(r.handle)
	for _, route := range all {
		if names[route.LinkIndex] == "" {
			link, err := r.handle.LinkByIndex(route.LinkIndex)
			if err != nil {
				continue // it went, and the route with it
			}
			names[route.LinkIndex] = link.Attrs().Name
			if link.Attrs().Flags&net.FlagUp != 0 {
				r.links[link.Attrs().Name] = route.LinkIndex
			}
		}
		is := parse(&route, names[route.LinkIndex])
		if usual := 1024 * family(is.To.Addr()); route.Priority != usual {
			k.strays = append(k.strays, stray{is, route.Priority})
			continue
		}
		k.routes[is.key()] = is
	}
	return err
}

// family is 0 for IPv4, and 1 for IPv6.
func family(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// routesOf returns the routes with the protocol and a next hop, of both tables.
func routesOf(h *netlink.Handle) (found []netlink.Route, err error) {
	for _, of := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		for _, table := range []int{mainTable, Table} {
			all, err := listed(func() ([]netlink.Route, error) {
				filter := &netlink.Route{Protocol: Protocol, Table: table}
				return h.RouteListFiltered(of, filter, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
			})
			if err != nil && !errors.Is(err, unix.EAFNOSUPPORT) {
				return nil, err
			}
			for _, route := range all {
				if route.Gw != nil || route.Via != nil {
					found = append(found, route)
				}
			}
		}
	}
	return found, nil
}

// parse returns a route of the kernel.
func parse(r *netlink.Route, device string) Route {
	is := Route{Device: device, OnLink: r.Flags&int(netlink.FLAG_ONLINK) != 0, Via: addrOf(r.Gw), Source: addrOf(r.Src)}
	if r.Table != mainTable {
		is.Table = r.Table
	}
	if via, ok := r.Via.(*netlink.Via); ok {
		is.Via = addrOf(via.Addr)
	}
	is.To = destination(r)
	return is
}

// destination returns the range that a route of the kernel is for.
func destination(r *netlink.Route) netip.Prefix {
	if r.Dst == nil {
		return netip.Prefix{}
	}
	bits, _ := r.Dst.Mask.Size()
	return netip.PrefixFrom(addrOf(r.Dst.IP), bits)
}

func addrOf(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

// readNeighbors reads the neighbors and the forwarding entries of a device.
func (r *Router) readNeighbors(k *kernel, device string, index int) error {
	for _, of := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6, unix.AF_BRIDGE} {
		all, err := listed(func() ([]netlink.Neigh, error) { return r.handle.NeighList(index, of) })
		if err != nil && !errors.Is(err, unix.EAFNOSUPPORT) {
			return err
		}
		for _, n := range all {
			if len(n.HardwareAddr) != len(MAC{}) {
				continue
			}
			addr, mac := addrOf(n.IP), MAC(n.HardwareAddr)
			switch {
			case of == unix.AF_BRIDGE:
				k.forwards[Forward{device, mac, addr}] = true
			case n.State&unix.NUD_PERMANENT != 0:
				is := Neighbor{device, addr, mac}
				k.neighbors[is.key()] = is
			}
		}
	}
	return nil
}

// syncRules has the kernel have the rules that are wanted.
func (r *Router) syncRules() (changed int, err error) {
	missing := slices.Clone(r.want.local.Rules)
	all, err := rulesOf(r.handle)
	if err != nil {
		return 0, fmt.Errorf("reading rules: %w", err)
	}
	for _, rule := range all {
		if i := slices.Index(missing, ruleSource(&rule)); i >= 0 && rule.Priority == RulePriority && rule.Table == Table {
			missing = slices.Delete(missing, i, i+1)
			continue
		}
		if err := r.handle.RuleDel(&rule); err != nil && !errors.Is(err, unix.ENOENT) {
			return changed, fmt.Errorf("removing %s: %w", rule, err)
		}
		changed++
	}
	for _, p := range missing {
		rule := netlink.NewRule()
		rule.Priority, rule.Table, rule.Protocol = RulePriority, Table, Protocol
		rule.Family = int(addressFamily(p.Addr()))
		rule.Src = &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
		if err := r.handle.RuleAdd(rule); err != nil {
			return changed, fmt.Errorf("adding %s: %w", rule, err)
		}
		changed++
	}
	return changed, nil
}

// rulesOf returns the rules with the protocol.
func rulesOf(h *netlink.Handle) (found []netlink.Rule, err error) {
	for _, of := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		all, err := listed(func() ([]netlink.Rule, error) { return h.RuleList(of) })
		if err != nil && !errors.Is(err, unix.EAFNOSUPPORT) {
			return nil, err
		}
		for _, rule := range all {
			if rule.Protocol == Protocol {
				rule.Family = of
				found = append(found, rule)
			}
		}
	}
	return found, nil
}

func ruleSource(r *netlink.Rule) netip.Prefix {
	if r.Src == nil {
		return netip.Prefix{}
	}
	bits, _ := r.Src.Mask.Size()
	return netip.PrefixFrom(addrOf(r.Src.IP), bits)
}
