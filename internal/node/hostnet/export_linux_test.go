package hostnet

import (
	mdlayher "github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Lasting returns the Config for a kernel without TUN devices and owned tables. The
// device has the given kind.
func (c Config) Lasting(kind string) Config {
	c.fallback = fallback{tun: "/dev/net/none", kind: kind, plain: true}
	return c
}

// Confuse leaves a response on the table's socket that no request is waiting for, like
// a late response.
func (n *Net) Confuse() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, err := n.table.socket.Send(mdlayher.Message{
		Header: mdlayher.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETGEN, Flags: mdlayher.Request},
		Data:   []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0},
	})
	return err
}

// Look performs one check.
func (n *Net) Look() { n.check() }

// NoEvents is the log message for a kernel without events.
const NoEvents = noEvents
