package forwarding

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"

	"portolan.dev/portolan/bench/rig"
)

// The measured server has one processor. The load generator and the upstreams share the
// other.
const (
	serverCPU    = 0
	generatorCPU = 1
)

// bench is the state that all measurements share.
type bench struct {
	*settings
	log     *slog.Logger
	dir     string
	machine string

	workshop            *rig.Workshop
	generator, upstream string // programs
	entrants            []*entrant
	parts               []part
	stages              int // number of stages so far
	made                int // number of new names so far
}

func (b *bench) file(name string) string { return filepath.Join(b.dir, name) }

// prepare builds the programs and determines the contenders.
func (b *bench) prepare(ctx context.Context) (err error) {
	chosen, err := rig.Choose(partNames(), b.settings.parts)
	if err != nil {
		return err
	}
	for _, p := range parts() {
		if slices.Contains(chosen, p.name) {
			b.parts = append(b.parts, p)
		}
	}
	names, err := rig.Choose(contenderNames(), b.contenders)
	if err != nil {
		return err
	}
	if b.workshop, err = rig.NewWorkshop(ctx, b.log, b.dir); err != nil {
		return err
	}
	if b.generator, err = b.workshop.Tool(ctx, "load/generator"); err != nil {
		return err
	}
	if b.upstream, err = b.workshop.Tool(ctx, "upstream"); err != nil {
		return err
	}
	for _, name := range names {
		e, err := b.enter(ctx, name)
		if err != nil {
			b.log.Warn("leaving out a contender", "name", name, "err", err)
			continue
		}
		b.log.Info("taking part", "contender", name, "version", e.version)
		b.entrants = append(b.entrants, e)
	}
	if len(b.entrants) == 0 {
		return errors.New("no contender is left")
	}
	return nil
}

// enter prepares a contender and checks that it returns the upstreams' answers.
func (b *bench) enter(ctx context.Context, name string) (*entrant, error) {
	e, err := b.entrant(ctx, name)
	if err != nil {
		return nil, err
	}
	const compared = 100
	return e, b.on(ctx, e, func(st *stage) error {
		if err := fill(ctx, st.DNS, b.newNames(compared)); err != nil {
			return fmt.Errorf("compare answers: %w", err)
		}
		return nil
	})
}
