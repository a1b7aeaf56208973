package policy

import (
	"context"
	"errors"
	"runtime"

	"portolan.dev/portolan/internal/policy/plan"
)

// measureLoad has an empty kernel hold the rules, and then a new agent find that it does.
func (b *bench) measureLoad(context.Context) (figures []figure, err error) {
	const goal = 2000 // ms
	store, err := model(large.eachPod, eachPolicy)
	if err != nil {
		return nil, err
	}
	runtime.GC()
	var compiler *plan.Compiler
	compiled, err := measured(func() error { compiler = compile(store); return nil })
	if err != nil {
		return nil, err
	}
	runtime.GC()
	k, err := newKernel(compiler)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, k.close()) }()
	loaded := k.loaded
	if err := k.end(); err != nil {
		return nil, err
	}
	runtime.GC()
	if err := k.sync(compiler); err != nil {
		return nil, err
	}
	stats := compiler.Stats()
	return []figure{
		{what: "elements", number: float64(stats.Elements)},
		{what: "sets", number: float64(stats.Sets)},
		{what: "processor time of compiling, ms", number: milliseconds(compiled.processor)},
		{what: "processor time of loading, ms", number: milliseconds(loaded.processor), most: goal},
		{what: "time of loading, ms", number: milliseconds(loaded.took)},
		{what: "processor time of comparing at the next start, ms", number: milliseconds(k.loaded.processor)},
	}, nil
}
