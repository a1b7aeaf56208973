package alloc

import (
	"fmt"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/cluster"
)

// Paths of the fields that refusals name, and their texts.
const (
	clusterIPsField         = "spec.clusterIPs"
	familiesField           = "spec.ipFamilies"
	policyField             = "spec.ipFamilyPolicy"
	healthCheckField        = "spec.healthCheckNodePort"
	noNodePortsField        = "spec.allocateLoadBalancerNodePorts"
	portsField              = "spec.ports"
	nodePortOfPort          = ".nodePort"
	mayNotChange            = "may not change once set"
	notForExternalName      = "may not be set for ExternalName services"
	releaseNeedsSingleStack = "must be 'SingleStack' to release the secondary "
)

// resolveFamilies sets the policy and families (kube-apiserver: initIPFamilyFields; page
// "IPv4/IPv6 dual-stack").
func (a *Allocator) resolveFamilies(d *draft) (p problems) {
	if d.typ == cluster.ExternalName || d.preferenceUnchanged() {
		return nil
	}
	d.defaultPolicy()
	if p = d.checkFamilies(); len(p) > 0 {
		return p
	}
	p = append(p, d.downgradeToSingle()...)
	p = append(p, a.inferFamilies(d)...)
	if len(p) > 0 {
		return p
	}
	if d.headless() && !d.selects {
		// The families of its endpoints are unknown, so the cluster's families do not limit them.
		d.completeFamilies(a.families[0], otherFamily)
		return nil
	}
	if p = a.checkConfigured(d); len(p) > 0 {
		return p
	}
	d.completeFamilies(a.families[0], func(f cluster.AddressType) cluster.AddressType {
		if len(a.families) < 2 {
			return ""
		}
		return otherFamily(f)
	})
	return nil
}

// preferenceUnchanged reports whether a PreferDualStack Service retains its families: it
// follows a change of the cluster's families only when it is changed itself.
func (d *draft) preferenceUnchanged() bool {
	return d.typ == d.was.typ && d.typ != cluster.ExternalName &&
		d.policy == cluster.PreferDualStack && (d.was.policy == "" || d.was.policy == cluster.PreferDualStack) &&
		slices.Equal(d.ips, d.was.ips) && slices.Equal(d.families, d.was.families)
}

func (d *draft) defaultPolicy() {
	switch {
	case d.policy != "":
	case d.was.policy != "":
		d.policy = d.was.policy
	case d.headless() && !d.selects:
		d.policy = cluster.RequireDualStack
	default:
		d.policy = cluster.SingleStack
	}
}

// checkFamilies validates the families, policy and addresses of the manifest
// (kube-apiserver: ValidateServiceClusterIPsRelatedFields).
func (d *draft) checkFamilies() (p problems) {
	for i, f := range d.families {
		if f != cluster.IPv4 && f != cluster.IPv6 {
			p.unsupported(at(familiesField, i), quoted(f), string(cluster.IPv4), string(cluster.IPv6))
		}
		if slices.Contains(d.families[:i], f) {
			p.duplicate(at(familiesField, i), quoted(f))
		}
	}
	switch d.policy {
	case cluster.SingleStack, cluster.PreferDualStack, cluster.RequireDualStack:
	default:
		p.unsupported(policyField, quoted(d.policy),
			string(cluster.PreferDualStack), string(cluster.RequireDualStack), string(cluster.SingleStack))
	}
	if len(d.ips) > 2 {
		p.invalid(clusterIPsField, d.ipList(), "may only hold up to 2 values")
	}
	if d.headless() {
		return p
	}
	differs := func(ip netip.Addr) bool { return cluster.FamilyOf(ip) != cluster.FamilyOf(d.ips[0]) }
	if len(d.ips) > 1 && !slices.ContainsFunc(d.ips[1:], differs) {
		p.invalid(clusterIPsField, d.ipList(), "may specify no more than one IP for each IP family")
	}
	for i, ip := range d.ips[:min(len(d.ips), len(d.families))] {
		if f := d.families[i]; f == otherFamily(cluster.FamilyOf(ip)) {
			p.invalid(at(clusterIPsField, i), quoted(ip.String()),
				fmt.Sprintf("expected an %s value as indicated by `ipFamilies[%d]`", f, i))
		}
	}
	return p
}

// downgradeToSingle removes the second family and address of a Service that becomes
// single-stack, unless the manifest sets them. It refuses any other removal, and two
// families or addresses of a single-stack Service.
func (d *draft) downgradeToSingle() (p problems) {
	single := d.policy == cluster.SingleStack
	switch {
	case d.isNew():
	case single:
		if slices.Equal(d.ips, d.was.ips) {
			d.ips = d.ips[:min(len(d.ips), 1)]
		}
		if slices.Equal(d.families, d.was.families) {
			d.families = d.families[:min(len(d.families), 1)]
		}
	default:
		if 0 < len(d.ips) && len(d.ips) < len(d.was.ips) {
			p.invalid(policyField, quoted(d.policy), releaseNeedsSingleStack+"cluster IP")
		}
		if 0 < len(d.families) && len(d.families) < len(d.was.families) {
			p.invalid(policyField, quoted(d.policy), releaseNeedsSingleStack+"IP family")
		}
	}
	if single && len(d.ips) == 2 {
		p.invalid(policyField, quoted(d.policy),
			"must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs are specified")
	}
	if single && len(d.families) == 2 {
		p.invalid(policyField, quoted(d.policy),
			"must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified")
	}
	return p
}

// inferFamilies derives families that the manifest does not set from the addresses that
// it sets.
func (a *Allocator) inferFamilies(d *draft) (p problems) {
	if d.headless() {
		return nil
	}
	for i, ip := range d.ips {
		if i < len(d.families) {
			continue
		}
		f := cluster.FamilyOf(ip)
		if a.ranges[f] == nil {
			p.invalid(at(clusterIPsField, i), d.ipList(), string(f)+" is not configured on this cluster")
			continue
		}
		d.families = append(d.families, f)
	}
	return p
}

// checkConfigured checks that the cluster has the requested families.
func (a *Allocator) checkConfigured(d *draft) (p problems) {
	if d.policy == cluster.RequireDualStack && len(a.families) < 2 {
		p.invalid(policyField, quoted(d.policy), "this cluster is not configured for dual-stack services")
	}
	for i, f := range d.families {
		if a.ranges[f] == nil {
			p.invalid(at(familiesField, i), quoted(f), "not configured on this cluster")
		}
	}
	return p
}

// completeFamilies sets the first family if there is none, and adds the second, as
// returned by the function, unless the policy is single-stack.
func (d *draft) completeFamilies(first cluster.AddressType, second func(cluster.AddressType) cluster.AddressType) {
	if len(d.families) == 0 {
		d.families = append(d.families, first)
	}
	if d.policy == cluster.SingleStack || len(d.families) > 1 {
		return
	}
	if f := second(d.families[0]); f != "" {
		d.families = append(d.families, f)
	}
}

func otherFamily(f cluster.AddressType) cluster.AddressType {
	if f == cluster.IPv4 {
		return cluster.IPv6
	}
	return cluster.IPv4
}

// ipList returns clusterIPs as the API server prints them.
func (d *draft) ipList() string { return listed(ipTexts(d.ips, 0)) }
