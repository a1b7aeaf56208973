package nft

import (
	"net/netip"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/policy/ruleset"
	"portolan.dev/portolan/internal/support/nfnetlink"
)

// Replace has t replace elements that are added again, as on a kernel that does not refresh them.
func (t *Table) Replace(replaces bool) { t.resolved.replaces = replaces }

// AddResolved has t add addresses to one set.
func (t *Table) AddResolved(set string, addrs []netip.Addr, ttl time.Duration) error {
	return t.ChangeResolved([]ruleset.Resolution{{Set: set, Addrs: addrs, TTL: ttl}})
}

// Divide has t divide transactions of more octets than some, and call a function after each part.
func (t *Table) Divide(octets int, committed func()) { t.divideAt, t.committed = octets, committed }

// Deafen has t keep hardly any message for Watch, after its first Sync.
func (t *Table) Deafen() error { return t.listener.SetReadBuffer(1) }

// TryAbsent has t try features that no kernel has between those that it has.
func (t *Table) TryAbsent(names ...string) error {
	all := t.features()
	for _, name := range names {
		all = append(all, feature{name, func(b *batch) error {
			b.newChain(&chain{name: "probe"})
			b.message(unix.NFT_MSG_NEWRULE, netlink.Create|netlink.Append, func(buf []byte) []byte {
				buf = nfnetlink.AppendString(buf, unix.NFTA_RULE_CHAIN, "probe")
				buf, list := nfnetlink.OpenNested(buf, unix.NFTA_RULE_EXPRESSIONS)
				buf, item := nfnetlink.OpenNested(buf, unix.NFTA_LIST_ELEM)
				buf = nfnetlink.AppendString(buf, unix.NFTA_EXPR_NAME, "absent")
				nfnetlink.CloseNested(buf, item)
				nfnetlink.CloseNested(buf, list)
				return buf
			})
			return nil
		}})
	}
	return t.try(append(all, t.features()...))
}

// Disconnect has the next transaction of t fail, as if the process was killed before it.
func (t *Table) Disconnect() { _ = t.socket.Close() }
