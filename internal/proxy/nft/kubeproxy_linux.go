package nft

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/support/nfnetlink"
)

// KubeProxy is what a kube-proxy of any mode left in the kernel, or has there while it runs.
// Rules of iptables are found if they are nftables' (iptables-nft), as they are by default in
// all distributions that have nftables.
type KubeProxy struct {
	tables   []Family
	iptables []*leftovers
	hasIPVS  bool
}

// FindKubeProxy returns what there is of kube-proxy.
func FindKubeProxy() (*KubeProxy, error) {
	t := New(Config{Name: kubeProxyTable})
	defer t.Close()
	k, err := t.findKubeProxy()
	if err != nil {
		return nil, fmt.Errorf("rules of kube-proxy: %w", err)
	}
	return k, nil
}

func (t *Table) findKubeProxy() (*KubeProxy, error) {
	if err := t.open(); err != nil {
		return nil, err
	}
	k := new(KubeProxy)
	for _, of := range []Family{IPv4, IPv6} {
		there, err := t.exists(of, kubeProxyTable)
		if err != nil {
			return nil, err
		}
		if there {
			k.tables = append(k.tables, of)
		}
		if err := t.findChains(of, k); err != nil {
			return nil, err
		}
	}
	_, err := net.InterfaceByName(kubeProxyDevice)
	k.hasIPVS = err == nil // its error has no type that says that there is none
	return k, nil
}

// findChains adds the leftovers in the tables of iptables of a family.
func (t *Table) findChains(of Family, k *KubeProxy) error {
	if err := t.limit(); err != nil {
		return err
	}
	all, err := t.conn.ListChainsOfTableFamily(nftables.TableFamily(of.nfproto()))
	if err != nil {
		return nfnetlink.ErrnoOf(err)
	}
	for _, table := range slices.Sorted(maps.Keys(kubeProxyChains)) {
		var names []string
		isBuiltIn := make(map[string]bool)
		for _, c := range all {
			if c.Table.Name == table {
				names = append(names, c.Name)
				isBuiltIn[c.Name] = c.Hooknum != nil
			}
		}
		if !slices.ContainsFunc(names, func(name string) bool { return ofKubeProxy(table, name) }) {
			continue
		}
		jumps, err := t.jumps(of, table)
		if err != nil {
			return err
		}
		left := &leftovers{family: of, table: table}
		if left.find(names, isBuiltIn, jumps); len(left.chains)+len(left.jumps) > 0 {
			k.iptables = append(k.iptables, left)
		}
	}
	return nil
}

// jumps returns the rules of a table that jump to a chain. The library cannot read all rules of
// iptables.
func (t *Table) jumps(of Family, table string) (all []chainJump, err error) {
	rules, err := t.list(of, unix.NFT_MSG_GETRULE, nfnetlink.AppendString(nil, unix.NFTA_RULE_TABLE, table))
	if err != nil {
		return nil, err
	}
	for _, data := range rules {
		parts, err := nfnetlink.Attributes(
			data, unix.NFTA_RULE_TABLE, unix.NFTA_RULE_CHAIN, unix.NFTA_RULE_HANDLE, unix.NFTA_RULE_EXPRESSIONS,
		)
		if err != nil {
			return nil, err
		}
		if nfnetlink.Text(parts[0]) != table {
			continue
		}
		to, err := targets(parts[3])
		if err != nil {
			return nil, err
		}
		for _, to := range to {
			all = append(all, chainJump{from: nfnetlink.Text(parts[1]), to: to, handle: string(parts[2])})
		}
	}
	return all, nil
}

// targets returns the chains that expressions jump to.
func targets(expressions []byte) (all []string, err error) {
	list, err := netlink.NewAttributeDecoder(expressions)
	if err != nil {
		return nil, err
	}
	for list.Next() {
		parts, err := nfnetlink.Attributes(list.Bytes(), unix.NFTA_EXPR_NAME, unix.NFTA_EXPR_DATA)
		if err != nil {
			return nil, err
		}
		if nfnetlink.Text(parts[0]) != "immediate" {
			continue
		}
		data := parts[1]
		for _, kind := range []uint16{unix.NFTA_IMMEDIATE_DATA, unix.NFTA_DATA_VERDICT, unix.NFTA_VERDICT_CHAIN} {
			inner, err := nfnetlink.Attributes(data, kind)
			if err != nil {
				return nil, err
			}
			data = inner[0]
		}
		if len(data) > 0 {
			all = append(all, nfnetlink.Text(data))
		}
	}
	return all, list.Err()
}

// exists reports whether there is a table.
func (t *Table) exists(of Family, name string) (bool, error) {
	if err := t.limit(); err != nil {
		return false, err
	}
	_, err := t.conn.ListTableOfFamily(name, nftables.TableFamily(of.nfproto()))
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, nfnetlink.ErrnoOf(err)
	}
	return true, nil
}

// List describes what there is, one line for each table and device.
func (k *KubeProxy) List() (all []string) {
	for _, of := range k.tables {
		all = append(all, fmt.Sprintf("table %s %s", of, kubeProxyTable))
	}
	for _, left := range k.iptables {
		all = append(all, left.String())
	}
	if k.hasIPVS {
		all = append(all, "device "+kubeProxyDevice)
	}
	return all
}

// maxRemovals is how many octets of messages are in one transaction, and one message more.
const maxRemovals = 1 << 18

// Remove removes it from the kernel. The rules of other programs stay, and so do those of the
// kubelet.
func (k *KubeProxy) Remove() error {
	err := k.removeRules()
	if err == nil && k.hasIPVS {
		err = removeDevice(kubeProxyDevice)
	}
	if err != nil {
		return fmt.Errorf("removing the rules of kube-proxy: %w", err)
	}
	return nil
}

// removeRules removes jumps first, after which no packet meets the chains.
func (k *KubeProxy) removeRules() error {
	t := New(Config{})
	defer t.Close()
	if err := t.open(); err != nil {
		return err
	}
	b := new(batch)
	var failed error
	remove := func(of Family, kind uint16, attributes ...[]byte) {
		b.remove(of, kind, attributes...)
		if len(b.Buf) > maxRemovals && failed == nil {
			failed = b.Commit(t.socket)
			b.reset()
		}
	}
	for _, left := range k.iptables {
		for _, j := range left.jumps {
			remove(left.family, unix.NFT_MSG_DELRULE, attributeText(unix.NFTA_RULE_TABLE, left.table),
				attributeText(unix.NFTA_RULE_CHAIN, j.from), nfnetlink.AppendAttribute(nil, unix.NFTA_RULE_HANDLE, j.handle))
		}
	}
	for _, of := range k.tables {
		remove(of, unix.NFT_MSG_DELTABLE, attributeText(unix.NFTA_TABLE_NAME, kubeProxyTable))
	}
	for _, left := range k.iptables {
		for _, name := range left.chains { // of their rules
			remove(left.family, unix.NFT_MSG_DELRULE,
				attributeText(unix.NFTA_RULE_TABLE, left.table), attributeText(unix.NFTA_RULE_CHAIN, name))
		}
	}
	for _, left := range k.iptables {
		for _, name := range left.chains {
			remove(left.family, unix.NFT_MSG_DELCHAIN,
				attributeText(unix.NFTA_CHAIN_TABLE, left.table), attributeText(unix.NFTA_CHAIN_NAME, name))
		}
	}
	if failed != nil {
		return failed
	}
	return b.Commit(t.socket)
}

func attributeText(kind uint16, s string) []byte { return nfnetlink.AppendString(nil, kind, s) }

// removeDevice removes the network device with a name, if there is one (rtnetlink(7)).
func removeDevice(name string) error {
	socket, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	defer socket.Close()
	if err := socket.SetDeadline(time.Now().Add(nfnetlink.AnswerWithin)); err != nil {
		return err
	}
	_, err = socket.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.RTM_DELLINK, Flags: netlink.Request | netlink.Acknowledge},
		Data:   nfnetlink.AppendString(make([]byte, unix.SizeofIfInfomsg), unix.IFLA_IFNAME, name),
	})
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("device %s: %w", name, nfnetlink.ErrnoOf(err))
	}
	return nil
}
