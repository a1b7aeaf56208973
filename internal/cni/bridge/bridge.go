// Package bridge finds Pods that a bridge of the node connects without netfilter, and so without policies. Two
// ports of a bridge exchange frames; netfilter sees them as packets only with br_netfilter and the settings
// below /proc/sys/net/bridge (docs.kernel.org, networking/ip-sysctl).
package bridge

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// Settings is the directory of the settings of br_netfilter.
const Settings = "/proc/sys/net/bridge"

// Names of settings by family.
const (
	setting4 = "bridge-nf-call-iptables"
	setting6 = "bridge-nf-call-ip6tables"
)

// Off returns those settings in a directory with which packets would pass netfilter but do not, as sysctl
// names them: net.bridge.bridge-nf-call-iptables. Without the module all are off.
func Off(dir string) (off []string) {
	for _, name := range []string{setting4, setting6} {
		if isOff(dir, name) {
			off = append(off, "net.bridge."+name)
		}
	}
	return off
}

func isOff(dir, name string) bool {
	value, err := os.ReadFile(filepath.Join(dir, name))
	return err != nil || strings.TrimSpace(string(value)) == "0"
}

// Cure says what to do about settings that are off.
func Cure(off []string) string {
	return "load the kernel module br_netfilter and set " + strings.Join(off, "=1 and ") + "=1"
}

// Past returns the bridge that connects a Pod's address with others of the node without netfilter, with the
// setting that is off; empty if there is none. It needs Linux: elsewhere there is none.
func Past(addr netip.Addr) (device, setting string, err error) {
	setting = setting4
	if addr.Is6() {
		setting = setting6
	}
	if !isOff(Settings, setting) {
		return "", "", nil
	}
	if device, err = deviceOf(addr); err != nil {
		return "", "", fmt.Errorf("find the bridge of %s: %w", addr, err)
	}
	if device == "" {
		return "", "", nil
	}
	return device, "net.bridge." + setting, nil
}
