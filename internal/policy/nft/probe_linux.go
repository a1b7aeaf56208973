package nft

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"portolan.dev/portolan/internal/policy/ruleset"
)

// probeSuffix is added to the name of a table that shows what the kernel has. It never gets packets.
const probeSuffix = "-probe"

// feature is something that the kernel may lack.
type feature struct {
	name string
	try  func(b *batch) error
}

// features returns what the table needs.
func (t *Table) features() []feature {
	type named struct {
		name        string
		expressions []expr.Any
	}
	r := &renderer{Config: t.cfg}
	logged := r.logged(Prefix{Chain: "probe"})
	limited := logged[0].expressions
	all := []feature{}
	for _, e := range []named{
		{"connection tracking (nft_ct)", []expr.Any{&expr.Ct{Key: expr.CtKeySTATE, Register: 1}}},
		{"limits (nft_limit)", limited[:1]},
		{"logs to a group (nft_log, nfnetlink_log)", limited[1:]},
		{"counters (nft_counter)", logged[1].expressions},
		{"comparisons of packets", ports(ruleset.Ports{Protocol: ruleset.TCP, First: 1, Last: 2})},
	} {
		all = append(all, feature{e.name, func(b *batch) error {
			c := &chain{name: "probe", rules: []rule{{expressions: e.expressions}}}
			b.newChain(c)
			return b.newRules(c)
		}})
	}
	for _, s := range []struct {
		name  string
		shape shape
	}{
		{"sets (nft_set_hash)", ipv4.shapeOf(ruleset.Hosts)},
		{"sets of concatenations", ipv6.shapeOf(ruleset.HostPorts)},
		{"sets of intervals (nft_set_rbtree)", ipv6.shapeOf(ruleset.Blocks)},
		{"sets with timeouts", ipv4.shapeOf(ruleset.Resolved)},
		{"verdict maps", ipv4.ownShapes()[setEgress+ipv4.suffix]},
		{"sets of devices", deviceShapes()[setDevices]},
	} {
		all = append(all, feature{s.name, func(b *batch) error {
			b.newSet("probe", s.shape, "")
			return nil
		}})
	}
	return all
}

// probe tries what the table needs, and finds out whether the kernel refreshes timeouts. Its error
// names what the kernel lacks.
func (t *Table) probe() error {
	if _, err := removeTable(t.socket, t.cfg.Name+probeSuffix); err != nil { // of a process that was killed
		return err
	}
	if err := t.try(t.features()); err != nil {
		return err
	}
	return t.probeRefresh()
}

// try tries features one by one, and names those that fail.
func (t *Table) try(features []feature) error {
	var lacks []string
	var failed error
	for _, f := range features {
		b := &batch{table: t.cfg.Name + probeSuffix}
		b.newTable()
		if err := f.try(b); err != nil {
			return err
		}
		b.deleteTable()
		err := b.Commit(t.socket)
		switch {
		case err == nil:
			continue
		case !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EINVAL):
			return err
		}
		lacks, failed = append(lacks, f.name), err
		closeSocket(&t.socket)
		if err := t.open(); err != nil {
			return err
		}
	}
	if failed != nil {
		return fmt.Errorf("the kernel lacks %s: %w", strings.Join(lacks, ", "), failed)
	}
	return nil
}

// probeRefresh adds an element twice, and compares its timeouts.
func (t *Table) probeRefresh() error {
	b := &batch{table: t.cfg.Name + probeSuffix}
	b.newTable()
	b.newSet("probe", ipv4.shapeOf(ruleset.Resolved), "")
	add := func(timeout time.Duration) {
		b.edit(addition, "probe", []element{{key: "\xc0\x00\x02\x01", timeout: timeout, expires: timeout}})
	}
	add(time.Minute)
	err := b.Commit(t.socket)
	if err == nil {
		b.Reset()
		add(time.Hour)
		err = b.Commit(t.socket)
	}
	r := &reader{socket: t.socket, table: b.table}
	all, listed := r.elements("probe")
	for _, e := range all {
		t.resolved.replaces = e.timeout != time.Hour || e.expires < 2*time.Minute
	}
	b.Reset()
	b.deleteTable()
	return errors.Join(err, listed, b.Commit(t.socket))
}
