package daemon

import (
	"context"
	"errors"

	"portolan.dev/portolan/internal/kube/simulate/apiobject"
)

// errAskKubectl is Get's of a cluster that has an API server.
var errAskKubectl = errors.New("only manifests are shown (--manifests DIR); of a cluster that has an API server, kubectl get shows the same and more")

// Get reads manifests once and puts the objects together that are
// chosen, by each choice.
func (d *Daemon) Get(ctx context.Context, version string, choices []apiobject.Choice) ([][]apiobject.Object, Loaded, error) {
	if d.cfg.Manifests == "" {
		return nil, Loaded{}, errAskKubectl
	}
	l, err := d.Load(ctx, version, true)
	if err != nil {
		return nil, l, err
	}
	c := apiobject.Builder{Store: d.store, Declared: l.Declared}
	if d.plane != nil {
		c.Slices = d.plane.Slices
	}
	objects := make([][]apiobject.Object, len(choices))
	for i, choice := range choices {
		if objects[i], err = c.Objects(choice); err != nil {
			return nil, l, err
		}
	}
	return objects, l, nil
}
