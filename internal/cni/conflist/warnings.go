package conflist

import (
	"portolan.dev/portolan/internal/cni/bridge"
)

// Warnings returns why policies are not enforced for all packets of the network's Pods, one sentence each.
func (n Network) Warnings() []string { return append(n.bridged(bridge.Settings), n.unsupported()...) }

// bridged returns warnings of plugins that connect Pods by a bridge, given the directory of its settings.
func (n Network) bridged(settings string) (warnings []string) {
	off := bridge.Off(settings)
	for _, kind := range n.Plugins {
		if len(off) > 0 && (kind == "bridge" || kind == "flannel") { // which calls bridge, unless it is configured otherwise
			warnings = append(warnings, "the plugin "+kind+" connects Pods by a bridge, and packets between Pods of this "+
				"node pass it without their policies: "+bridge.Cure(off))
		}
	}
	return warnings
}

// unsupported returns warnings of plugins whose packets may not pass nftables.
func (n Network) unsupported() (warnings []string) {
	for _, kind := range n.Plugins {
		if kind == "cilium-cni" {
			warnings = append(warnings, "the datapath of Cilium can pass packets by netfilter, without the policies of "+
				"Portolan: have one of them enforce policies; and with cni.exclusive, Cilium rewrites its configuration "+
				"whenever another program changes it")
		}
	}
	return warnings
}
