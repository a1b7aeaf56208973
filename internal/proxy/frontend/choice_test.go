package frontend

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

// randomEndpoints returns n sorted endpoints.
func randomEndpoints(random *rand.Rand, n int) (all []netip.AddrPort) {
	for len(all) < n {
		a := netip.AddrFrom4([4]byte{10, 244, byte(random.IntN(16)), byte(random.IntN(256))})
		if p := netip.AddrPortFrom(a, 8080); !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, netip.AddrPort.Compare)
	return all
}

// picker returns which endpoint a connection with a key gets.
func picker(endpoints []netip.AddrPort) func(key []byte) netip.AddrPort {
	at := make(map[uint32]netip.AddrPort)
	for _, s := range HashTable(endpoints) {
		at[s.Number] = s.To
	}
	draws := Draws(TableSize(len(endpoints)))
	return func(key []byte) netip.AddrPort {
		for _, d := range draws {
			if to, ok := at[d.slot(key)]; ok {
				return to
			}
		}
		return netip.AddrPort{}
	}
}

// TestHashTable checks that each endpoint has one slot and a number of spare slots, and that
// endpoints, whatever their number, have even shares of connections.
func TestHashTable(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 2, 3, 4, 5, 9, 17, 50, 100, 129} {
		all := randomEndpoints(random, n)
		size := TableSize(n)
		shares, missed := make(map[netip.AddrPort]float64), 1.0
		for range maxHashes {
			missed *= 1 - float64(n)/float64(size)
		}
		slots := HashTable(all)
		if len(slots) != n+spareSlots(size) {
			t.Fatalf("HashTable of %d endpoints has %d slots", n, len(slots))
		}
		for _, s := range slots {
			if s.Number < uint32(size) {
				shares[s.To] += (1 - missed) / float64(n)
			} else {
				shares[s.To] += missed / float64(spareSlots(size))
			}
		}
		least, most := 2.0, 0.0
		for _, to := range all {
			share := shares[to] * float64(n)
			least, most = min(least, share), max(most, share)
		}
		t.Logf("%d endpoints: shares of %.4f to %.4f of the mean", n, least, most)
		if least < 0.98 || most > 1.08 {
			t.Errorf("%d endpoints: shares of %.4f to %.4f of the mean", n, least, most)
		}
	}
}

// TestHashSpread checks that the hash of connections spreads them evenly: counts differ from
// the mean by no more than is likely.
func TestHashSpread(t *testing.T) {
	t.Parallel()
	const n, connections = 8, 80000
	pick, counts := picker(randomEndpoints(rand.New(rand.NewPCG(3, 4)), n)), make(map[netip.AddrPort]int)
	for i := range uint32(connections) { // neighboring clients and ports
		key := binary.BigEndian.AppendUint32(nil, 0x0af40000+i/100)
		counts[pick(append(binary.BigEndian.AppendUint16(key, uint16(32768+i%100)), 0, 0))]++
	}
	for to, c := range counts {
		const mean, likely = connections / n, 500 // five standard deviations
		if c < mean-likely || c > mean+likely {
			t.Errorf("%s has %d of %d connections, want %d±%d", to, c, connections, mean, likely)
		}
	}
}

// TestHashDisruption checks, over random sets of each size, that no connection goes to an endpoint
// that is gone, and that few move besides those that it had.
func TestHashDisruption(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 6))
	for _, n := range []int{3, 4, 6, 8, 10, 16, 30, 64, 100} {
		const trials, keys = 100, 300
		had, moved := 0, 0
		for range trials {
			all := randomEndpoints(random, n)
			gone := random.IntN(n)
			before, after := picker(all), picker(slices.Delete(slices.Clone(all), gone, gone+1))
			for range keys {
				key := binary.NativeEndian.AppendUint64(nil, random.Uint64())
				was, is := before(key), after(key)
				switch {
				case was == all[gone]:
					had++
				case was != is:
					moved++
				}
				if is == all[gone] || !is.IsValid() {
					t.Fatalf("a connection goes to %s, which is not there", is)
				}
			}
		}
		share := float64(moved) / float64(had)
		t.Logf("%d endpoints: one goes, and %.2f of its connections move besides", n, share)
		if share > 0.6 {
			t.Errorf("%d endpoints: one goes, and %.2f of its connections move besides", n, share)
		}
	}
}
