package alloc

import (
	"fmt"
	"strconv"

	"portolan.dev/portolan/internal/cluster"
)

// check validates a draft's addresses and node ports as the API server does after
// allocation (kube-apiserver: ValidateServiceUpdate, validateService). The result does
// not depend on which ones are allocated.
func (d *draft) check() (p problems) {
	if !d.isNew() {
		p = append(p, d.checkChange()...)
	}
	p = append(p, d.checkType()...)
	for i, number := range d.nodePorts {
		if number == 0 {
			continue
		}
		if d.typ == cluster.ClusterIP {
			p.forbidden(at(portsField, i)+nodePortOfPort, "may not be used when `type` is 'ClusterIP'")
		}
		if d.sharesProtocol(i) {
			p.duplicate(at(portsField, i)+nodePortOfPort, strconv.FormatUint(uint64(number), 10))
		}
	}
	if d.noNodePorts && d.typ != cluster.LoadBalancer {
		p.forbidden(noNodePortsField, "may only be used when `type` is 'LoadBalancer'")
	}
	if d.healthCheck != 0 && !d.hasHealthCheck() {
		p.invalid(healthCheckField, strconv.FormatUint(uint64(d.healthCheck), 10),
			"may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'")
	}
	return p
}

// checkType validates the fields that some types do not support.
func (d *draft) checkType() (p problems) {
	switch {
	case d.hasNodePorts() && d.headless():
		p.invalid(at(clusterIPsField, 0), quoted("None"), fmt.Sprintf("may not be set to 'None' for %s services", d.typ))
	case d.typ == cluster.ExternalName:
		if len(d.ips) > 0 {
			p.forbidden(clusterIPsField, notForExternalName)
		}
		if len(d.families) > 0 {
			p.forbidden(familiesField, notForExternalName)
		}
		if d.policy != "" {
			p.forbidden(policyField, notForExternalName)
		}
	}
	return p
}

// checkChange validates the immutable fields.
func (d *draft) checkChange() (p problems) {
	if d.typ != cluster.ExternalName && d.was.typ != cluster.ExternalName {
		p = append(p, d.checkAddressChange()...)
	}
	if d.was.hasHealthCheck() && d.hasHealthCheck() && d.healthCheck != d.was.healthCheck {
		p.forbidden(healthCheckField, "field is immutable")
	}
	return p
}

// checkAddressChange checks that the first address and the first family do not change,
// nor the second ones if there were two and are two (kube-apiserver:
// validateUpgradeDowngradeClusterIPs and validateUpgradeDowngradeIPFamilies). Headless
// Services may change families.
func (d *draft) checkAddressChange() (p problems) {
	if d.headless() && d.was.headless() {
		return nil
	}
	// Addresses still to be allocated count.
	n := len(d.ips)
	if d.firstNew() < 2 {
		n = len(d.families)
	}
	for i := range min(len(d.ips), len(d.was.ips)) {
		if d.ips[i] != d.was.ips[i] && (i == 0 || n == len(d.was.ips)) {
			p.invalid(at(clusterIPsField, i), listed(ipTexts(d.ips, n)), mayNotChange)
		}
	}
	if d.headless() != d.was.headless() {
		return p
	}
	for i := range min(len(d.families), len(d.was.families)) {
		sameCount := len(d.families) == len(d.was.families)
		switch {
		case d.families[i] == d.was.families[i]:
		case sameCount:
			p.invalid(at(familiesField, 0), listed(d.families), mayNotChange)
		case i == 0: // kube-apiserver prints the addresses, too
			p.invalid(at(familiesField, 0), listed(ipTexts(d.ips, n)), mayNotChange)
		}
	}
	return p
}
