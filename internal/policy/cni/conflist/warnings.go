package conflist

import (
	"os"
	"path/filepath"
	"strings"
)

// bridgeSettings is the directory of the settings with which bridged packets pass netfilter (br_netfilter).
const bridgeSettings = "/proc/sys/net/bridge"

// Warnings returns why policies are not enforced for all packets of the network's Pods, one sentence each.
func (n Network) Warnings() []string { return n.warnings(bridgeSettings) }

func (n Network) warnings(settings string) (warnings []string) {
	for _, kind := range n.Plugins {
		switch kind {
		case "bridge", "flannel": // which calls bridge, unless it is configured otherwise
			if off := bridgedPast(settings); len(off) > 0 {
				warnings = append(warnings, "the plugin "+kind+" connects Pods by a bridge, and packets between Pods of this "+
					"node pass it without their policies: load the kernel module br_netfilter and set "+
					strings.Join(off, " and "))
			}
		case "cilium-cni":
			warnings = append(warnings, "the datapath of Cilium can pass packets by netfilter, without the policies of "+
				"Portolan: have one of them enforce policies; and with cni.exclusive, Cilium rewrites its configuration "+
				"whenever another program changes it")
		}
	}
	return warnings
}

// bridgedPast returns the settings that are to be made.
func bridgedPast(settings string) (off []string) {
	for _, name := range []string{"bridge-nf-call-iptables", "bridge-nf-call-ip6tables"} {
		value, err := os.ReadFile(filepath.Join(settings, name))
		if err != nil || strings.TrimSpace(string(value)) == "0" {
			off = append(off, "net.bridge."+name+"=1")
		}
	}
	return off
}
