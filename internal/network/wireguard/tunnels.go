package wireguard

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// Config configures Tunnels.
type Config struct {
	// Device is the name of the device.
	Device string
	// Port is the UDP port of all nodes' tunnels.
	Port uint16

	open func() (controller, error) // the kernel, unless it is set
}

// controller reads and configures devices. *wgctrl.Client implements it.
type controller interface {
	Device(name string) (*wgtypes.Device, error)
	ConfigureDevice(name string, cfg wgtypes.Config) error
	Close() error
}

// Tunnels are those of the own node. All methods are safe for concurrent use.
type Tunnels struct {
	cfg Config

	mu      sync.Mutex
	private wgtypes.Key // zero before the first Sync
	peers   map[string]Peer
	synced  bool
}

// New returns Tunnels, and changes nothing.
func New(cfg Config) *Tunnels {
	if cfg.open == nil {
		cfg.open = func() (controller, error) { return wgctrl.New() }
	}
	return &Tunnels{cfg: cfg, peers: make(map[string]Peer)}
}

// Key returns the public key of the own node; the zero Key before the device has one.
func (t *Tunnels) Key() Key {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.private == (wgtypes.Key{}) {
		return Key{}
	}
	return Key(t.private.PublicKey())
}

// Peers returns how many other nodes have a tunnel.
func (t *Tunnels) Peers() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.peers)
}

// Sync has the device have the node's key and exactly these peers. It changes nothing that is right, so that tunnels in
// use go on. A device that was made anew gets the key that the one before had.
func (t *Tunnels) Sync(peers []Peer) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.peers = make(map[string]Peer, len(peers))
	for _, p := range peers {
		t.peers[p.Name] = p
	}
	return t.sync()
}

// Apply changes peers.
func (t *Tunnels) Apply(c *Changes) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	gone, put := make(map[Key]bool), make([]wgtypes.PeerConfig, 0, len(c.Put))
	for _, name := range c.Delete {
		gone[t.peers[name].Key] = true
		delete(t.peers, name)
	}
	for _, p := range c.Put {
		if was, ok := t.peers[p.Name]; ok {
			gone[was.Key] = true
		}
	}
	for _, p := range c.Put {
		delete(gone, p.Key)
		t.peers[p.Name] = p
		put = append(put, p.config())
	}
	if !t.synced {
		return t.sync()
	}
	return t.configure(wgtypes.Config{Peers: append(removals(maps.Keys(gone)), put...)})
}

// Resync has the device have what the last Sync and Apply told, as after it was made anew.
func (t *Tunnels) Resync() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sync()
}

// sync compares the device with what it should have, and configures the difference. The caller holds mu.
func (t *Tunnels) sync() error {
	t.synced = false
	control, err := t.cfg.open()
	if err != nil {
		return t.fail(err)
	}
	defer control.Close()
	has, err := control.Device(t.cfg.Device)
	if err != nil {
		return t.fail(err)
	}
	var cfg wgtypes.Config
	if t.private == (wgtypes.Key{}) {
		t.private = has.PrivateKey
	}
	if t.private == (wgtypes.Key{}) {
		if t.private, err = wgtypes.GeneratePrivateKey(); err != nil {
			return fmt.Errorf("private key: %w", err)
		}
	}
	if has.PrivateKey != t.private {
		cfg.PrivateKey = &t.private
	}
	if has.ListenPort != int(t.cfg.Port) {
		cfg.ListenPort = new(int(t.cfg.Port))
	}
	cfg.Peers = t.difference(has.Peers)
	if cfg.PrivateKey != nil || cfg.ListenPort != nil || len(cfg.Peers) > 0 {
		if err := control.ConfigureDevice(t.cfg.Device, cfg); err != nil {
			return t.fail(err)
		}
	}
	t.synced = true
	return nil
}

// difference returns what leads from the peers of the device to what they should be.
func (t *Tunnels) difference(have []wgtypes.Peer) (all []wgtypes.PeerConfig) {
	missing := make(map[Key]Peer, len(t.peers))
	for _, p := range t.peers {
		missing[p.Key] = p
	}
	gone := make(map[Key]bool)
	for i := range have {
		key := Key(have[i].PublicKey)
		want, ok := missing[key]
		switch {
		case !ok:
			gone[key] = true
		case want.is(&have[i]):
			delete(missing, key)
		}
	}
	all = removals(maps.Keys(gone))
	for _, key := range sorted(maps.Keys(missing)) {
		p := missing[key]
		all = append(all, p.config())
	}
	return all
}

// configure configures the device. The caller holds mu.
func (t *Tunnels) configure(cfg wgtypes.Config) error {
	control, err := t.cfg.open()
	if err == nil {
		err = control.ConfigureDevice(t.cfg.Device, cfg)
		_ = control.Close()
	}
	if err != nil {
		t.synced = false
		return t.fail(err)
	}
	return nil
}

// ErrNoDevice is wrapped by the errors for a device that is not there, or of another kind.
var ErrNoDevice = errors.New("there is none of WireGuard")

// fail says what failed.
func (t *Tunnels) fail(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		err = ErrNoDevice
	}
	return fmt.Errorf("device %s: %w", t.cfg.Device, err)
}

// is reports whether a peer of the device is as it should be.
func (p *Peer) is(has *wgtypes.Peer) bool {
	var allowed []netip.Prefix
	for _, n := range has.AllowedIPs {
		addr, _ := netip.AddrFromSlice(n.IP)
		bits, _ := n.Mask.Size()
		allowed = append(allowed, netip.PrefixFrom(addr.Unmap(), bits))
	}
	want := slices.SortedFunc(slices.Values(p.Allowed), netip.Prefix.Compare)
	slices.SortFunc(allowed, netip.Prefix.Compare)
	return has.Endpoint != nil && endpoint(has.Endpoint) == p.Endpoint && slices.Equal(want, allowed) &&
		has.PresharedKey == wgtypes.Key{} && has.PersistentKeepaliveInterval == 0
}

func endpoint(a *net.UDPAddr) netip.AddrPort {
	e := a.AddrPort()
	return netip.AddrPortFrom(e.Addr().Unmap(), e.Port())
}

// config returns the peer as it is configured, whatever the device has of it.
func (p *Peer) config() wgtypes.PeerConfig {
	c := wgtypes.PeerConfig{
		PublicKey: wgtypes.Key(p.Key), PresharedKey: new(wgtypes.Key), Endpoint: net.UDPAddrFromAddrPort(p.Endpoint),
		PersistentKeepaliveInterval: new(time.Duration), ReplaceAllowedIPs: true,
	}
	for _, a := range p.Allowed {
		mask := net.CIDRMask(a.Bits(), a.Addr().BitLen())
		c.AllowedIPs = append(c.AllowedIPs, net.IPNet{IP: a.Addr().AsSlice(), Mask: mask})
	}
	return c
}

// removals removes peers from a device.
func removals(keys iter.Seq[Key]) (all []wgtypes.PeerConfig) {
	for _, k := range sorted(keys) {
		all = append(all, wgtypes.PeerConfig{PublicKey: wgtypes.Key(k), Remove: true})
	}
	return all
}

func sorted(keys iter.Seq[Key]) []Key {
	return slices.SortedFunc(keys, func(a, b Key) int { return bytes.Compare(a[:], b[:]) })
}
