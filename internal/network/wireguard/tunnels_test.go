package wireguard

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

const port = 51820

// fakeDevice is a device as the kernel's: an address that is given to a peer is taken from the one that has it.
type fakeDevice struct {
	absent  bool
	refuse  error // of the next configuration
	private wgtypes.Key
	port    int
	peers   map[wgtypes.Key]*wgtypes.Peer
	configs int
}

func (d *fakeDevice) open() (controller, error) { return d, nil }

func (d *fakeDevice) Close() error { return nil }

func (d *fakeDevice) Device(name string) (*wgtypes.Device, error) {
	if d.absent || name != "wg" {
		return nil, fs.ErrNotExist
	}
	is := &wgtypes.Device{Name: name, PrivateKey: d.private, ListenPort: d.port}
	for _, p := range d.peers {
		is.Peers = append(is.Peers, *p)
	}
	return is, nil
}

func (d *fakeDevice) ConfigureDevice(name string, cfg wgtypes.Config) error {
	if d.absent || name != "wg" {
		return fs.ErrNotExist
	}
	if err := d.refuse; err != nil {
		d.refuse = nil
		return err
	}
	d.configs++
	if cfg.PrivateKey != nil {
		d.private = *cfg.PrivateKey
	}
	if cfg.ListenPort != nil {
		d.port = *cfg.ListenPort
	}
	if d.peers == nil {
		d.peers = make(map[wgtypes.Key]*wgtypes.Peer)
	}
	for _, p := range cfg.Peers {
		d.configurePeer(p)
	}
	return nil
}

func (d *fakeDevice) configurePeer(p wgtypes.PeerConfig) {
	if p.Remove {
		delete(d.peers, p.PublicKey)
		return
	}
	is := d.peers[p.PublicKey]
	if is == nil {
		is = &wgtypes.Peer{PublicKey: p.PublicKey}
		d.peers[p.PublicKey] = is
	}
	if p.ReplaceAllowedIPs {
		is.AllowedIPs = nil
	}
	for _, a := range p.AllowedIPs {
		for _, o := range d.peers {
			o.AllowedIPs = slices.DeleteFunc(o.AllowedIPs, func(n net.IPNet) bool { return n.String() == a.String() })
		}
		is.AllowedIPs = append(is.AllowedIPs, a)
	}
	if p.PresharedKey != nil {
		is.PresharedKey = *p.PresharedKey
	}
	is.Endpoint = p.Endpoint
}

// text is what the device has, one line for each peer.
func (d *fakeDevice) text() string {
	var lines []string
	for _, p := range d.peers {
		var allowed []string
		for _, a := range p.AllowedIPs {
			allowed = append(allowed, a.String())
		}
		slices.Sort(allowed)
		lines = append(lines, fmt.Sprintf("%d %s %s", p.PublicKey[0], p.Endpoint, strings.Join(allowed, " ")))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func peer(name string, key byte, endpoint string, allowed ...string) Peer {
	p := Peer{Name: name, Key: Key{key, 31: 1}, Endpoint: netip.AddrPortFrom(netip.MustParseAddr(endpoint), port)}
	for _, a := range allowed {
		p.Allowed = append(p.Allowed, netip.MustParsePrefix(a))
	}
	return p
}

func newTunnels(d *fakeDevice) *Tunnels { return New(Config{Device: "wg", Port: port, open: d.open}) }

// TestSync: what the device has after Sync, whatever it had.
func TestSync(t *testing.T) {
	t.Parallel()
	two := peer("node-2", 2, "192.0.2.2", "10.244.2.0/24", "192.0.2.2/32")
	three := peer("node-3", 3, "2001:db8::3", "fd03::/64")
	const want = "2 192.0.2.2:51820 10.244.2.0/24 192.0.2.2/32\n3 [2001:db8::3]:51820 fd03::/64"
	for claim, test := range map[string]struct {
		change  func(*fakeDevice) // of a device that has both peers
		configs int
	}{
		"nothing is changed that is right": {func(*fakeDevice) {}, 0},
		"a peer of others goes":            {func(d *fakeDevice) { d.peers[wgtypes.Key{9}] = &wgtypes.Peer{PublicKey: wgtypes.Key{9}} }, 1},
		"a peer that was removed is back":  {func(d *fakeDevice) { delete(d.peers, wgtypes.Key(two.Key)) }, 1},
		"an address that a peer may not send from goes": {func(d *fakeDevice) {
			d.peers[wgtypes.Key(two.Key)].AllowedIPs[0] = net.IPNet{IP: net.IP{10, 0, 0, 0}, Mask: net.CIDRMask(8, 32)}
		}, 1},
		"an endpoint is the Node's": {func(d *fakeDevice) {
			d.peers[wgtypes.Key(two.Key)].Endpoint = net.UDPAddrFromAddrPort(netip.MustParseAddrPort("198.51.100.1:1"))
		}, 1},
		"a preshared key goes":                          {func(d *fakeDevice) { d.peers[wgtypes.Key(two.Key)].PresharedKey = wgtypes.Key{1} }, 1},
		"the port is the configured one":                {func(d *fakeDevice) { d.port = 1 }, 1},
		"a device made anew gets all, and the same key": {func(d *fakeDevice) { *d = fakeDevice{} }, 1},
		"a key that another program set goes":           {func(d *fakeDevice) { d.private = wgtypes.Key{7} }, 1},
	} {
		d := new(fakeDevice)
		tunnels := newTunnels(d)
		must(t, tunnels.Sync([]Peer{two, three}))
		key := tunnels.Key()
		test.change(d)
		d.configs = 0
		must(t, tunnels.Sync([]Peer{two, three}))
		if got := d.text(); got != want || d.port != port || d.configs != test.configs {
			t.Errorf("%s: after Sync the device has port %d, configured %d times, and\n%s\nwant %d times, and\n%s",
				claim, d.port, d.configs, got, test.configs, want)
		}
		if Key(d.private.PublicKey()) != key || tunnels.Key() != key {
			t.Errorf("%s: the device has the key %s, Key() = %s, want %s", claim, d.private.PublicKey(), tunnels.Key(), key)
		}
	}
}

// TestKeyOutlivesProcess: a process takes the key of the device over, and makes one where there is none.
func TestKeyOutlivesProcess(t *testing.T) {
	t.Parallel()
	d := new(fakeDevice)
	before, after := newTunnels(d), newTunnels(d)
	if key := before.Key(); key != (Key{}) {
		t.Errorf("before Sync, Key() = %s", key)
	}
	must(t, before.Sync(nil))
	must(t, after.Sync(nil))
	if before.Key() == (Key{}) || before.Key() != after.Key() {
		t.Errorf("the keys are %s and %s, want one", before.Key(), after.Key())
	}
	other := newTunnels(new(fakeDevice))
	must(t, other.Sync(nil))
	if other.Key() == after.Key() {
		t.Errorf("two devices have the key %s", other.Key())
	}
}

// TestErrors: an error names the device, and the next call brings everything.
func TestErrors(t *testing.T) {
	t.Parallel()
	d := &fakeDevice{absent: true}
	tunnels := newTunnels(d)
	two := peer("node-2", 2, "192.0.2.2", "10.244.2.0/24")
	if err := tunnels.Sync([]Peer{two}); err == nil || err.Error() != "device wg: there is none of WireGuard" {
		t.Errorf("without a device, Sync: %v", err)
	}
	d.absent = false
	must(t, tunnels.Resync())
	d.refuse = errors.New("refused")
	three := peer("node-3", 3, "192.0.2.3", "10.244.3.0/24")
	if err := tunnels.Apply(&Changes{Put: []Peer{three}}); err == nil || err.Error() != "device wg: refused" {
		t.Errorf("with a device that refuses, Apply: %v", err)
	}
	must(t, tunnels.Apply(&Changes{Delete: []string{"node-2"}}))
	if got, want := d.text(), "3 192.0.2.3:51820 10.244.3.0/24"; got != want || tunnels.Peers() != 1 {
		t.Errorf("after an error the device has %d peers:\n%s\nwant\n%s", tunnels.Peers(), got, want)
	}
}

// TestApplyEqualsSync: whatever changes, of keys, endpoints, ranges and peers, the device has what Sync leads to.
func TestApplyEqualsSync(t *testing.T) {
	t.Parallel()
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 5))
		d := new(fakeDevice)
		tunnels := newTunnels(d)
		must(t, tunnels.Sync(nil))
		all := make(map[string]Peer)
		for range 10 {
			c := change(r, all)
			must(t, tunnels.Apply(c))
			whole := new(fakeDevice)
			var want []Peer
			for _, p := range all {
				want = append(want, p)
			}
			must(t, newTunnels(whole).Sync(want))
			if d.text() != whole.text() {
				t.Fatalf("seed %d: Apply(%+v) leads to\n%s\nwant\n%s", seed, c, d.text(), whole.text())
			}
		}
	}
}

// change changes one or two peers. Keys and ranges wander between them.
func change(r *rand.Rand, all map[string]Peer) *Changes {
	c := new(Changes)
	first := r.IntN(4)
	for i := range 1 + r.IntN(2) {
		name := fmt.Sprint("node-", (first+i)%4)
		if _, ok := all[name]; ok && r.IntN(3) == 0 {
			delete(all, name)
			c.Delete = append(c.Delete, name)
			continue
		}
		taken := func(use func(Peer) bool) bool {
			for n, p := range all {
				if n != name && use(p) {
					return true
				}
			}
			return false
		}
		p := peer(name, byte(1+r.IntN(6)), fmt.Sprintf("192.0.2.%d", r.IntN(3)), fmt.Sprintf("10.244.%d.0/24", r.IntN(6)))
		if taken(func(o Peer) bool { return o.Key == p.Key || o.Allowed[0] == p.Allowed[0] }) {
			continue
		}
		all[name] = p
		c.Put = append(c.Put, p)
	}
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
