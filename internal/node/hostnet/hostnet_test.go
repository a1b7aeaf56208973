package hostnet_test

import (
	"net/netip"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/node/hostnet"
)

func TestValidate(t *testing.T) {
	addrs := func(all ...string) (a []netip.Addr) {
		for _, s := range all {
			a = append(a, netip.MustParseAddr(s))
		}
		return a
	}
	many := make([]netip.Addr, hostnet.MaxAddresses+1)
	for i := range many {
		many[i] = netip.AddrFrom4([4]byte{169, 254, 20, byte(i)})
	}
	good := hostnet.Config{Addresses: addrs("169.254.20.10", "fd00::a"), Port: 53, Prefix: "portolan"}
	if err := good.Validate(); err != nil {
		t.Errorf("%+v: %v", good, err)
	}
	tests := map[string]struct {
		change func(*hostnet.Config)
		says   string
	}{
		"none":                {func(c *hostnet.Config) { c.Addresses = nil }, "0 addresses"},
		"too many":            {func(c *hostnet.Config) { c.Addresses = many }, "17 addresses"},
		"no address":          {func(c *hostnet.Config) { c.Addresses = make([]netip.Addr, 1) }, "unicast"},
		"unspecified":         {func(c *hostnet.Config) { c.Addresses = addrs("::") }, "unicast"},
		"loopback":            {func(c *hostnet.Config) { c.Addresses = addrs("127.0.0.53") }, "loopback"},
		"multicast":           {func(c *hostnet.Config) { c.Addresses = addrs("ff02::fb") }, "unicast"},
		"broadcast":           {func(c *hostnet.Config) { c.Addresses = addrs("255.255.255.255") }, "unicast"},
		"IPv4-mapped":         {func(c *hostnet.Config) { c.Addresses = addrs("::ffff:169.254.20.10") }, "unicast"},
		"zone":                {func(c *hostnet.Config) { c.Addresses = addrs("fd00::a%eth0") }, "zone"},
		"IPv6 link-local":     {func(c *hostnet.Config) { c.Addresses = addrs("fe80::a") }, "fd00::a"},
		"twice":               {func(c *hostnet.Config) { c.Addresses = addrs("fd00::a", "fd00::a") }, "twice"},
		"port 0":              {func(c *hostnet.Config) { c.Port = 0 }, "port"},
		"no prefix":           {func(c *hostnet.Config) { c.Prefix = "" }, "prefix"},
		"a long prefix":       {func(c *hostnet.Config) { c.Prefix = "portolan-node" }, "prefix"},
		"a number in front":   {func(c *hostnet.Config) { c.Prefix = "0portolan" }, "prefix"},
		"a percent sign":      {func(c *hostnet.Config) { c.Prefix = "port%d" }, "prefix"},
		"a slash in a prefix": {func(c *hostnet.Config) { c.Prefix = "a/b" }, "prefix"},
	}
	for claim, tt := range tests {
		t.Run(claim, func(t *testing.T) {
			c := good
			tt.change(&c)
			if err := c.Validate(); err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%v: %v, want %q in it", c.Addresses, err, tt.says)
			}
		})
	}
}
