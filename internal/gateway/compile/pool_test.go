package compile

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/cluster"
)

// gatewayOf returns a Gateway that requests addresses and has others in its status. Of Hostname addresses the
// value has a dot at the end.
func gatewayOf(name, requests, status string) *cluster.Frontend {
	addresses := func(list string) (all []cluster.GatewayAddress) {
		for value := range strings.FieldsSeq(list) {
			a := cluster.GatewayAddress{Type: cluster.AddressIP, Value: strings.TrimPrefix(value, "any")}
			if strings.HasSuffix(value, ".") {
				a.Type = cluster.AddressHostname
			}
			all = append(all, a)
		}
		return all
	}
	return &cluster.Frontend{
		Kind: cluster.KindGateway, Key: cluster.Key{Namespace: "a", Name: name}, Gateway: &cluster.GatewaySpec{
			Addresses: addresses(requests), Status: cluster.GatewayStatus{Addresses: addresses(status)},
		},
	}
}

func TestAssign(t *testing.T) {
	t.Parallel()
	type gateway struct{ requests, status string }
	const one, two = "192.0.2.1", "192.0.2.2"
	const ours, ours6 = "203.0.113.1", "2001:db8::9" // that all share
	const requested = "203.0.113.9"
	published := &shared{
		[]cluster.GatewayAddress{gatewayAddress("lb.test"), gatewayAddress(ours), gatewayAddress(ours6)},
		[]netip.Addr{netip.MustParseAddr(ours), netip.MustParseAddr(requested)},
	}
	for claim, tt := range map[string]struct {
		pool      string
		byDefault bool
		gateways  []gateway // the older one first
		want      []string  // the addresses, and the reason why one is missing
	}{
		"without a pool, all share the process' addresses": {
			"", true, []gateway{{"", ""}, {"any", ""}, {"any any", one}}, []string{"shared", "shared", "shared"},
		},
		"without a pool, no address can be named": {"", false, []gateway{{one, ""}}, []string{"AddressNotUsable"}},
		"only who requests an address gets one": {
			one, false, []gateway{{"", ""}, {"any", ""}}, []string{"shared", one},
		},
		"who has no address by default leaves the one of before": {one, false, []gateway{{"", one}, {one, ""}}, []string{"shared", one}},
		"all get one by default":                                 {one + " " + two, true, []gateway{{"", ""}, {"", ""}}, []string{one, two}},
		"there are not enough":                                   {one, true, []gateway{{"", ""}, {"", ""}}, []string{one, "AddressNotAssigned"}},
		"the older one gets what both name":                      {one, false, []gateway{{one, ""}, {one, ""}}, []string{one, "AddressNotUsable"}},
		"one in another form":                                    {one, false, []gateway{{"::ffff:192.0.2.1", ""}}, []string{one}},
		"one that is not in the pool":                            {one, true, []gateway{{"192.0.2.9", ""}}, []string{"AddressNotUsable"}},
		"one that is no address":                                 {one, true, []gateway{{"here", ""}}, []string{"AddressNotUsable"}},
		"the others of a list":                                   {one + " " + two, true, []gateway{{"192.0.2.9 " + two, ""}}, []string{two + " AddressNotUsable"}},
		"one that is named, and any":                             {one + " " + two, true, []gateway{{two + " any", ""}}, []string{two + " " + one}},
		"a Gateway keeps the address it has":                     {one + " " + two, true, []gateway{{"", ""}, {"", one}}, []string{two, one}},
		"also if it named it before":                             {one + " " + two, true, []gateway{{"any", two}}, []string{two}},
		"unless it has left the pool":                            {one, true, []gateway{{"", two}}, []string{one}},
		"a younger one cannot take it":                           {one + " " + two, true, []gateway{{"", one}, {one, ""}}, []string{one, "AddressNotUsable"}},
		"an older one that names it can":                         {one + " " + two, true, []gateway{{one, ""}, {"", one}}, []string{one, two}},
		"two whose status has the same":                          {one + " " + two, true, []gateway{{"", one}, {"", one}}, []string{one, two}},
		"as many as are requested":                               {one + " " + two, true, []gateway{{"any", one + " " + two}, {"", ""}}, []string{one, two}},
		"a type that is not supported":                           {one, true, []gateway{{"name.test.", one}, {"", ""}}, []string{"", one}},
		"a type that is not supported, of many":                  {one, true, []gateway{{one + " name.test.", ""}, {one, ""}}, []string{"", one}},
		"one that all share, for two":                            {"", true, []gateway{{ours, ""}, {ours, ours}}, []string{"shared=" + ours, "shared=" + ours}},
		"some that all share, in another form":                   {"", true, []gateway{{"::ffff:" + ours + " 2001:DB8::9 " + ours6, ""}}, []string{"shared=" + ours + "," + ours6}},
		"one that all share, and one of the pool":                {one, true, []gateway{{ours + " " + one, ""}}, []string{"shared " + one + "=" + ours}},
		"one that all share, and one that is not usable":         {"", true, []gateway{{ours + " " + two, ""}}, []string{"shared=" + ours + " AddressNotUsable"}},
		"one that all share, and any, without a pool":            {"", true, []gateway{{ours + " any", ""}}, []string{"shared"}},
		"one that all share, and any of a pool":                  {one, true, []gateway{{ours + " any", ""}}, []string{"shared " + one + "=" + ours}},
		"one that is in the pool, too":                           {ours, true, []gateway{{ours, ""}, {ours, ""}}, []string{ours, "AddressNotUsable"}},
		"one that the Service requests and does not have":        {one, true, []gateway{{requested, ""}}, []string{"AddressNotAssigned"}},
		"no address, though all share a name":                    {"", true, []gateway{{"here", ""}}, []string{"AddressNotUsable"}},
		"IPv6":                                                   {"2001:db8::1", true, []gateway{{"2001:DB8:0::1", ""}}, []string{"2001:db8::1"}},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			cfg := &Config{PoolByDefault: tt.byDefault}
			for text := range strings.FieldsSeq(tt.pool) {
				cfg.Pool = append(cfg.Pool, netip.MustParseAddr(text))
			}
			var all []*cluster.Frontend
			for i, g := range tt.gateways {
				all = append(all, gatewayOf(fmt.Sprint("g", i), g.requests, g.status))
			}
			var got []string
			assigned := cfg.assign(all, published)
			for _, gw := range all {
				var words []string
				for _, addr := range assigned[gw.Key].addrs {
					words = append(words, strings.Replace(addr.String(), "invalid IP", "shared", 1))
				}
				if named := assigned[gw.Key].named; named != nil {
					words[len(words)-1] += "=" + strings.Join(textsOf(named), ",")
				}
				if problem := assigned[gw.Key].problem; problem != nil {
					words = append(words, problem.Reason)
				}
				got = append(got, strings.Join(words, " "))
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("assign(%v) = %q, want %q", tt.gateways, got, tt.want)
			}
		})
	}
}

// TestAssignIsStable writes what is assigned to the status, as the controller does, and assigns again: nothing
// changes. No address is that of two Gateways.
func TestAssignIsStable(t *testing.T) {
	t.Parallel()
	w := newWorld(1)
	cfg := testConfig
	cfg.PoolByDefault = true
	cfg.Pool = append(slices.Clone(cfg.Pool), netip.MustParseAddr("192.0.2.3"))
	for range 2000 {
		var all []*cluster.Frontend
		for i := range 5 {
			gw := w.gateway()
			gw.Name = fmt.Sprint("g", i)
			all = append(all, gw)
		}
		before := cfg.assign(all, new(shared))
		owners := make(map[netip.Addr]cluster.Key)
		for _, gw := range all {
			gw.Gateway.Status.Addresses = nil
			for _, addr := range before[gw.Key].addrs {
				if by, taken := owners[addr]; taken {
					t.Fatalf("%s has the address %s of %s", gw.Key, addr, by)
				}
				owners[addr] = gw.Key
				gw.Gateway.Status.Addresses = append(gw.Gateway.Status.Addresses, cluster.GatewayAddress{
					Type: cluster.AddressIP, Value: addr.String(),
				})
			}
		}
		for key, a := range cfg.assign(all, new(shared)) {
			if !slices.Equal(a.addrs, before[key].addrs) {
				t.Fatalf("%s has %v, before its status was written %v", key, a.addrs, before[key].addrs)
			}
		}
	}
}
