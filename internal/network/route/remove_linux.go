package route

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Remove removes from the kernel what a Router left there, and returns what that was.
func Remove() (removed []string, err error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("netlink: %w", err)
	}
	defer h.Close()
	rules, err := rulesOf(h)
	if err != nil {
		return nil, fmt.Errorf("reading rules: %w", err)
	}
	for _, rule := range rules {
		if err := h.RuleDel(&rule); err != nil && !errors.Is(err, unix.ENOENT) {
			return removed, fmt.Errorf("removing rule from %s: %w", ruleSource(&rule), err)
		}
		removed = append(removed, fmt.Sprintf("rule from %s lookup %d", ruleSource(&rule), rule.Table))
	}
	routes, err := routesOf(h)
	if err != nil {
		return removed, fmt.Errorf("reading routes: %w", err)
	}
	for _, route := range routes {
		if err := h.RouteDel(&route); err != nil && !errors.Is(err, unix.ESRCH) {
			return removed, fmt.Errorf("removing route %s: %w", route.Dst, err)
		}
		removed = append(removed, fmt.Sprintf("route %s", route.Dst))
	}
	unreachable, err := unreachableOf(h)
	if err != nil {
		return removed, fmt.Errorf("reading unreachable ranges: %w", err)
	}
	for _, route := range unreachable {
		if err := h.RouteDel(&route); err != nil && !errors.Is(err, unix.ESRCH) {
			return removed, fmt.Errorf("removing route unreachable %s: %w", route.Dst, err)
		}
		removed = append(removed, fmt.Sprintf("route unreachable %s", route.Dst))
	}
	for _, name := range devices {
		switch was, err := removeDevice(h, name); {
		case err != nil:
			return removed, err
		case was:
			removed = append(removed, "device "+name)
		}
	}
	return removed, nil
}
