package hostnet_test

import (
	"slices"
	"testing"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"

	"portolan.dev/portolan/internal/node/hostnet"
)

// TestRemove: what a killed agent left is removed; what a running one has, and a device and
// tables of other programs, stay.
func TestRemove(t *testing.T) {
	if onNode(t) == nil {
		return
	}
	kind := holder(t)
	other := &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Name: "others"}, LinkType: kind}
	must(t, netlink.LinkAdd(other))
	conn := rules(t)
	conn.AddTable(&nftables.Table{Name: "portolan", Family: nftables.TableFamilyIPv4})
	must(t, conn.Flush())

	startAgent(t, settings{Name: "old", Addresses: everything, Lasting: kind}).kill()
	if has := left(t); len(has) != whole+1 {
		t.Errorf("after kill -9 there is %q, want all", has)
	}
	for _, prefix := range []string{"others", "nothing"} {
		if removed, err := hostnet.Remove(prefix); err != nil || len(removed) > 0 {
			t.Errorf("Remove(%q) = %q, %v, want nothing", prefix, removed, err)
		}
	}
	removed, err := hostnet.Remove("portolan")
	if want := []string{"table inet portolan", "device portolan"}; err != nil || !slices.Equal(removed, want) {
		t.Errorf("Remove = %q, %v, want %q", removed, err, want)
	}
	if has := left(t); len(has) != 1 {
		t.Errorf("after Remove there is %q, want the table of another family", has)
	}
	if _, err := netlink.LinkByName("others"); err != nil {
		t.Errorf("the device of another program: %v", err)
	}

	agent := startAgent(t, settings{Name: "new", Addresses: everything})
	if removed, err := hostnet.Remove("portolan"); err != nil || len(removed) > 0 {
		t.Errorf("Remove while an agent runs = %q, %v, want nothing", removed, err)
	}
	if has := left(t); len(has) != whole+1 {
		t.Errorf("the running agent has %q, want all", has)
	}
	agent.stop(t)
}
