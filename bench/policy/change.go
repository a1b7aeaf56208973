package policy

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/policy/ruleset"
)

// measureChanges changes one label of one Pod after another. The processor time is from the write into
// the model until the kernel has committed the transaction.
func (b *bench) measureChanges(ctx context.Context) (figures []figure, err error) {
	const goal = .5 // ms
	store, err := model(large.eachPod, eachPolicy)
	if err != nil {
		return nil, err
	}
	feed := store.Subscribe()
	defer feed.Close()
	feed.Pending()
	compiler := compile(store)
	k, err := newKernel(compiler)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, k.close()) }()
	runtime.GC() // what compiling left
	var processor, planning, took []time.Duration
	elements := 0
	for i := range b.changes {
		changed, err := decode(large.relabeled(i))
		if err != nil {
			return nil, err
		}
		s, err := measured(func() (failure error) {
			store.Update(func(tx *cluster.Tx) { tx.Put(changed) })
			changes := feed.Pending()
			store.View(func(v *cluster.View) {
				var delta *ruleset.Delta
				var s spent
				if s, failure = measured(func() error { delta = compiler.Apply(v, &changes); return nil }); failure != nil {
					return
				}
				planning = append(planning, s.processor)
				for _, e := range delta.Elements {
					elements += len(e.Add) + len(e.Remove)
				}
				failure = k.table.Apply(compiler, delta)
			})
			return failure
		})
		if err != nil {
			return nil, fmt.Errorf("change %d: %w", i, err)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		processor, took = append(processor, s.processor), append(took, s.took)
	}
	if elements == 0 {
		return nil, errors.New("no change changed any element")
	}
	figures = quantiles("processor time until the kernel has it", processor, goal, 0)
	figures = append(figures, quantiles("of it, planning", planning, 0, 0)[0])
	figures = append(figures, quantiles("time", took, 0, 0)...)
	each := float64(elements) / float64(b.changes)
	return append(figures, figure{what: "elements that a change adds or removes", number: each}), nil
}
