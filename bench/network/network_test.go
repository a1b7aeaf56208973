package network

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestGoals has three rounds, of which one is far off for both.
func TestGoals(t *testing.T) {
	t.Parallel()
	add, join := key{"ADD", "processor"}, key{arriving, "direct p50"}
	reference := &result{contender: &contender{name: nameReference}, rounds: []figures{{add: 10}, {add: 100}, {add: 10}}}
	for claim, test := range map[string]struct {
		ours []figures
		want []string
	}{
		"met": {[]figures{{add: 5, join: 40}, {add: 20, join: 90}, {add: 4, join: 50}}, []string{
			"| processor time of ADD, ms | 10.0 (10.0 to 100) | 5.0 (4.0 to 20.0) | 0.40 (0.20 to 0.50) | ≤ 1/2 | met |",
			"| until there are routes, direct, p50, ms |  | 50.0 (40.0 to 90.0) |  | ≤ 50.0 ms | met |",
		}},
		"missed": {[]figures{{add: 6, join: 60}, {add: 20, join: 51}, {add: 7, join: 5}}, []string{
			"| processor time of ADD, ms | 10.0 (10.0 to 100) | 7.0 (6.0 to 20.0) | 0.60 (0.20 to 0.70) | ≤ 1/2 | missed |",
			"| until there are routes, direct, p50, ms |  | 51.0 (5.0 to 60.0) |  | ≤ 50.0 ms | missed |",
		}},
	} {
		b := &bench{settings: &settings{rounds: len(test.ours)}}
		text := b.markdown([]*result{reference, {contender: &contender{name: namePortolan}, rounds: test.ours}})
		for _, line := range test.want {
			if !strings.Contains(text, line+"\n") {
				t.Errorf("%s: the table lacks %q:\n%s", claim, line, text)
			}
		}
	}
}

// TestEverythingHasARow measures little, but all of it, and finds each figure in the table.
func TestEverythingHasARow(t *testing.T) {
	if testing.Short() || os.Getuid() != 0 {
		t.Skip("it builds programs, and makes network namespaces, which needs root")
	}
	for _, program := range []string{"ip", "nft", "bridge"} {
		if _, err := exec.LookPath(program); errors.Is(err, exec.ErrNotFound) {
			t.Skipf("there is no %s", program)
		}
	}
	before, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "bench") //nolint:usetesting // the name of a test would make that of the socket too long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &settings{
		rounds: 1, pods: hostPortEach + 1, batches: 1, nodes: 5, arrivals: 2,
		contenders: nameReference + "," + namePortolan,
	}
	results, b, err := s.measure(t.Context(), slog.New(slog.DiscardHandler), dir)
	if err != nil {
		t.Fatal(err)
	}
	text := b.markdown(results)
	for _, part := range sections() {
		for _, line := range part.rows {
			if number, ok := results[len(results)-1].rounds[0][line.key]; !ok || number <= 0 {
				t.Errorf("%s, %s: %v, %t\n%s", part.title, line.title, number, ok, text)
			}
		}
	}
	after, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.EqualFunc(before, after, func(a, b net.Interface) bool { return a.Name == b.Name }) {
		t.Errorf("the devices of this machine were %v and are %v", before, after)
	}
}

// TestRangesAreOfTheirOwn checks that the Pods of no two Nodes share an address.
func TestRangesAreOfTheirOwn(t *testing.T) {
	t.Parallel()
	for family, whole := range []string{podRange4, podRange6} {
		for i := 1; i < maxNodes; i++ {
			one, next := podRanges(i)[family], podRanges(i + 1)[family]
			if one.Overlaps(next) || !netip.MustParsePrefix(whole).Contains(next.Addr()) {
				t.Fatalf("the ranges of %s and of the next are %v and %v", nodeName(i), one, next)
			}
		}
	}
}
