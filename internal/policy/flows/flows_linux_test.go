package flows

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/policy/ruleset"
	"portolan.dev/portolan/internal/support/ctnetlink"
	"portolan.dev/portolan/internal/support/ctnetlink/ctnetlinktest"
	"portolan.dev/portolan/test/namespace/namespacetest"
)

const patience = 20 * time.Second

// TestCutsDeniedFlows compares the kernel's table before and after a change, of more entries than are
// judged at once.
func TestCutsDeniedFlows(t *testing.T) {
	t.Parallel()
	if !namespacetest.OnNode(t) {
		return
	}
	const each = 2*together + 1
	all := map[string]ctnetlinktest.Flow{
		"denied":                         {Protocol: unix.IPPROTO_TCP, Client: at("10.244.1.7:1"), Destination: at("10.244.2.9:80"), Replies: at("10.244.2.9:80")},
		"denied after translation":       {Protocol: unix.IPPROTO_UDP, Client: at("10.244.1.7:1"), Destination: at("10.96.0.10:53"), Replies: at("10.244.2.9:80")},
		"denied, IPv6":                   {Protocol: unix.IPPROTO_TCP, Client: at("[fd00::7]:1"), Destination: at("[fd00::9]:80"), Replies: at("[fd00::9]:80")},
		"allowed":                        {Protocol: unix.IPPROTO_TCP, Client: at("10.244.1.7:1"), Destination: at("10.244.2.9:443"), Replies: at("10.244.2.9:443")},
		"allowed after translation":      {Protocol: unix.IPPROTO_UDP, Client: at("10.244.1.7:1"), Destination: at("10.96.0.10:80"), Replies: at("10.244.2.9:53")},
		"of another zone, as a bridge's": {Protocol: unix.IPPROTO_TCP, Client: at("10.244.1.7:1"), Destination: at("10.244.2.9:80"), Replies: at("10.244.2.9:80"), Zone: 5},
	}
	var made []ctnetlinktest.Flow
	for _, f := range all {
		for i := range each {
			f.Client = netip.AddrPortFrom(f.Client.Addr(), uint16(1000+i))
			made = append(made, f)
		}
	}
	if err := ctnetlinktest.Create(made...); err != nil {
		t.Fatal(err)
	}
	var cut []ruleset.Flow
	passes := make(chan Pass, 10)
	c := New(Config{
		Denied: func(some []ruleset.Flow) (denials []Denial) {
			for i, f := range some {
				if f.Server.Port() == 80 {
					denials = append(denials, Denial{Flow: i})
				}
			}
			return denials
		},
		Cut: func(flows []ruleset.Flow) error {
			if n := len(tracked(t)); len(cut) == 0 && n != len(made) {
				t.Errorf("%d entries when flows are told to be cut, want all %d", n, len(made))
			}
			cut = append(cut, flows...)
			return nil
		},
		Passed: func(p Pass) { passes <- p }, Log: slog.New(slog.DiscardHandler),
	})
	ended := make(chan error, 1)
	go func() { ended <- c.Run(t.Context()) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	c.Changed()
	select {
	case p := <-passes:
		if p.Cut != 3*each || p.Err != nil {
			t.Errorf("pass: %+v, want %d cut", p, 3*each)
		}
	case <-time.After(patience):
		t.Fatal("no pass")
	}
	left := tracked(t)
	if n := len(left); n != 3*each {
		t.Errorf("%d entries are left, want %d", n, 3*each)
	}
	for _, f := range left {
		if f.Server.Port() == 80 && f.Client.Port() == 1000 && f.zone == 0 {
			t.Errorf("%s is left", f)
		}
	}
	want := ruleset.Flow{Protocol: ruleset.UDP, Client: at("10.244.1.7:1000"), Server: at("10.244.2.9:80")}
	if len(cut) != 3*each || !slices.Contains(cut, want) {
		t.Errorf("%d flows are cut, want %d with %v", len(cut), 3*each, want)
	}
}

// TestUncutFlowsStay verifies that no entry is deleted whose flow the kernel could not be told to cut, and
// that the pass is repeated.
func TestUncutFlowsStay(t *testing.T) {
	t.Parallel()
	if !namespacetest.OnNode(t) {
		return
	}
	createFlow(t)
	failure := errors.New("no room")
	c := New(Config{
		Denied: func([]ruleset.Flow) []Denial { return []Denial{{Flow: 0}} },
		Cut:    func([]ruleset.Flow) error { return failure },
		Log:    slog.New(slog.DiscardHandler),
	})
	if p := c.pass(); p.Cut != 0 || !errors.Is(p.Err, failure) {
		t.Errorf("pass: %+v, want none cut and %v", p, failure)
	}
	if n := len(tracked(t)); n != 1 {
		t.Errorf("%d entries, want 1", n)
	}
	failure = nil
	if p := c.pass(); p.Cut != 1 || p.Err != nil {
		t.Errorf("pass: %+v, want one cut", p)
	}
}

// TestFull verifies that flows are ended, and told of, that the kernel has no room to cut.
func TestFull(t *testing.T) {
	t.Parallel()
	if !namespacetest.OnNode(t) {
		return
	}
	createFlow(t)
	full := errors.New("no room")
	var log bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	c := New(Config{
		Denied: func([]ruleset.Flow) []Denial { return []Denial{{Flow: 0}} },
		Cut:    func([]ruleset.Flow) error { return fmt.Errorf("table: %w", full) },
		Full:   full,
		Passed: func(p Pass) {
			if p.Cut != 1 || p.Uncut != 1 || p.Err != nil {
				t.Errorf("pass: %+v, want one ended that is not cut", p)
			}
			cancel()
		},
		Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	c.Changed()
	if err := c.Run(ctx); err != nil {
		t.Error(err)
	}
	if n := len(tracked(t)); n != 0 || len(c.held) != 0 {
		t.Errorf("%d entries are left, %d flows are held, want none", n, len(c.held))
	}
	if !strings.Contains(log.String(), "level=WARN msg=\"too many flows were ended") {
		t.Errorf("the log does not say that flows were not cut:\n%s", &log)
	}
}

// createFlow creates a flow of TCP.
func createFlow(t *testing.T) {
	t.Helper()
	if err := ctnetlinktest.Create(ctnetlinktest.Flow{
		Protocol: unix.IPPROTO_TCP, Client: at("10.244.1.7:1"), Destination: at("10.244.2.9:80"), Replies: at("10.244.2.9:80"),
	}); err != nil {
		t.Fatal(err)
	}
}

func at(text string) netip.AddrPort { return netip.MustParseAddrPort(text) }

// entry is a flow of the kernel's table.
type entry struct {
	ruleset.Flow
	zone uint16
}

func (e entry) String() string { return fmt.Sprintf("%d %s → %s", e.Protocol, e.Client, e.Server) }

func tracked(t *testing.T) (all []entry) {
	t.Helper()
	table, err := ctnetlink.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	for _, family := range []ctnetlink.Family{ctnetlink.IPv4, ctnetlink.IPv6} {
		err := table.Each(ctnetlink.Filter{Family: family}, func(e *ctnetlink.Entry) {
			all = append(all, entry{ruleset.Flow{Protocol: ruleset.Protocol(e.Original.Protocol), Client: e.Original.Source, Server: e.Reply.Source}, e.Zone})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// TestHeldFlowsAreBounded verifies that flows that were cut take bounded memory, and that a share is free again
// when they are let go.
func TestHeldFlowsAreBounded(t *testing.T) {
	t.Parallel()
	c := New(Config{CutTime: time.Hour, Log: slog.New(slog.DiscardHandler)})
	held := func(share string) (all []ruleset.Flow) {
		for i := range maxHeld {
			client := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, share[0], byte(i >> 16)}), uint16(i))
			f := ruleset.Flow{Protocol: ruleset.TCP, Client: client, Server: at("10.244.2.9:80")}
			if c.hold(f, share) {
				all = append(all, f)
			}
		}
		return all
	}
	all := make(map[string][]ruleset.Flow)
	for _, share := range []string{"a", "b", "c"} {
		free := maxHeld - len(c.held)
		all[share] = held(share)
		if n := len(all[share]); n != free/2 {
			t.Errorf("%d flows of share %s are held, want half of the %d that are free", n, share, free)
		}
	}
	c.letGo(all["a"])
	if n := len(held("a")); n == 0 || len(c.held) > maxHeld {
		t.Errorf("%d flows of a share that is free again are held, %d in all, want at most %d", n, len(c.held), maxHeld)
	}
	c.letGo(slices.Collect(maps.Keys(c.held)))
	if len(c.held) > 0 || len(c.shares) > 0 {
		t.Errorf("%d flows and the shares %v are left after all are let go", len(c.held), c.shares)
	}
}
