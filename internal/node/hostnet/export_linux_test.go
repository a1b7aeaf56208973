package hostnet

import (
	mdlayher "github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Lasting is the Config where there is no TUN device and no table with an owner;
// the device is of the kind given.
func (c Config) Lasting(kind string) Config {
	c.fallback = fallback{tun: "/dev/net/none", kind: kind, plain: true}
	return c
}

// Confuse has an answer on the table's socket that nobody waits for, as one that
// comes too late.
func (n *Net) Confuse() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, err := n.table.socket.Send(mdlayher.Message{
		Header: mdlayher.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETGEN, Flags: mdlayher.Request},
		Data:   []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0},
	})
	return err
}

// Look is what Run does now and then.
func (n *Net) Look() { n.check() }

// NoEvents is the message that the kernel's events are not available.
const NoEvents = noEvents
