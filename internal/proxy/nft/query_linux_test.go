package nft_test

import (
	"errors"
	"io/fs"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/proxy/nft"
)

// TestLookup compares what the kernel has with frontends of each kind while another socket owns the
// table, then with others, and after elements were removed by others.
func TestLookup(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	at := tcp(vip(0, 1), frontend.Plain).Address
	if _, err := nft.Lookup(nft.DefaultName, at, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("without a table: %v, want one that wraps fs.ErrNotExist", err)
	}
	for name, f := range families {
		all := endpoints(f, 3)
		plain, external, local := tcp(vip(f, 1), frontend.Plain, all...), tcp(vip(f, 2), frontend.External, all[:2]...),
			tcp(vip(f, 3), frontend.ExternalLocal, all...)
		local.Local = all[1:2]
		limited := tcp(vip(f, 4), frontend.External, all...)
		limited.Sources = []netip.Prefix{netip.PrefixFrom(outClient[f], outClient[f].BitLen())}
		sticky := tcp(vip(f, 5), frontend.ExternalLocal, all...)
		sticky.Local, sticky.Affinity = all[:1], &frontend.Affinity{Group: "sticky", Timeout: time.Hour}
		empty, dropped := tcp(vip(f, 6), frontend.Plain), tcp(vip(f, 7), frontend.Plain)
		dropped.Empty = frontend.Drop
		large := tcp(vip(f, 8), frontend.Plain, many(f, 100)...)
		hashed, weighted := tcp(vip(f, 9), frontend.ExternalLocal, all...), tcp(vip(f, 10), frontend.Plain, all...)
		hashed.Local, hashed.Choice, weighted.Shares = all[:2], frontend.ClientHash, []uint8{3, 1, 1}
		fronts := []*frontend.Frontend{plain, external, local, limited, sticky, empty, dropped, large, hashed, weighted}
		table := w.table(nil)
		w.sync(table, &frontend.State{Frontends: fronts})
		chains := []string{
			"goto endpoints-3", "goto masquerade-2", "goto external-local-3", "goto limited", "goto affinity-3600-external-local-3",
			"goto refuse", "drop", "goto endpoints-112", "goto client-hash-external-local-8", "goto endpoints-5",
		}
		for i, front := range fronts {
			h, err := nft.Lookup(nft.DefaultName, front.Address, front)
			if err != nil {
				t.Fatalf("%s: Lookup(%s): %v", name, front.Address, err)
			}
			if len(h.Differences) > 0 || !slices.Equal(h.Endpoints, front.Endpoints) || !slices.Equal(h.Local, front.Local) ||
				!strings.HasSuffix(h.Element, " . tcp . 80 : "+chains[i]) {
				t.Errorf("%s: Lookup(%s) = %+v, want %s and no difference", name, front.Address, h, chains[i])
			}
		}
		differs := func(claim string, front *frontend.Frontend, want ...string) {
			t.Helper()
			h, err := nft.Lookup(nft.DefaultName, front.Address, front)
			if err != nil || !slices.Equal(h.Differences, want) {
				t.Errorf("%s: %s: Lookup(%s) = %q, %v, want %q", name, claim, front.Address, h.Differences, err, want)
			}
		}
		differs("one endpoint less", tcp(vip(f, 1), frontend.Plain, all[:2]...),
			"the map services has goto endpoints-3, the model goto endpoints-2",
			"it has the endpoint "+all[2].String()+", which the model does not use")
		differs("another endpoint", tcp(vip(f, 2), frontend.External, all[1:]...),
			"it lacks the endpoint "+all[2].String(), "it has the endpoint "+all[0].String()+", which the model does not use")
		differs("an address that the kernel lacks", tcp(vip(f, 99), frontend.Plain),
			"the map services has none, the model goto refuse", "the set addresses lacks "+vip(f, 99).String(),
			"the set cluster-ips lacks "+vip(f, 99).String())
		h, err := nft.Lookup(nft.DefaultName, plain.Address, nil)
		if err != nil || !slices.Equal(h.Differences, []string{"the model has nothing at this address"}) {
			t.Errorf("%s: Lookup without a frontend: %q, %v", name, h.Differences, err)
		}
		must(t, table.Close())
		for _, command := range [][]string{
			{"flush", "map", nft.FamilyOf(vip(f, 1)).String(), nft.DefaultName, "endpoints"},
			{"delete", "chain", nft.FamilyOf(vip(f, 1)).String(), nft.DefaultName, "prerouting"},
			{"flush", "set", nft.FamilyOf(vip(f, 1)).String(), nft.DefaultName, "source-ranges"},
		} {
			if out, err := exec.Command("nft", command...).CombinedOutput(); err != nil {
				t.Fatalf("nft %q: %v\n%s", command, err, out)
			}
		}
		missing := "the chain prerouting is missing, so that packets are not looked up"
		differs("others removed endpoints", external, missing,
			"it lacks the endpoint "+all[0].String(), "it lacks the endpoint "+all[1].String())
		h, err = nft.Lookup(nft.DefaultName, limited.Address, limited)
		if err != nil || !slices.Contains(h.Differences, "the set source-ranges lacks a range of the model") {
			t.Errorf("%s: others removed ranges: %q, %v", name, h.Differences, err)
		}
	}
}

// many returns n endpoints of a family, in order.
func many(family, n int) (all []netip.AddrPort) {
	addr := endpoint(family, 1).Addr()
	for range n {
		addr = addr.Next()
		all = append(all, netip.AddrPortFrom(addr, serverPort))
	}
	return all
}
