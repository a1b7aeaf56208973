package app

import (
	"context"
	"errors"
	"io"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/pod/connection"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/path"
	"portolan.dev/portolan/internal/pod/suite"
)

// mostExplained is the maximum number of cases that fail with an explanation: a suite for another cluster has
// suite.MostCases that fail, of up to some 10 KB each.
const mostExplained = 1000

// Test judges a suite, in one state of the model. The results have no explanations of what passed, nor of more than
// mostExplained that failed. The error has what of the suite names nothing in the cluster; the rest is judged.
func (i *Inspector) Test(ctx context.Context, s *suite.Suite, n NodeSettings) (all []suite.Result, err error) {
	i.store.View(func(v *cluster.View) {
		var cases []suite.Case
		cases, err = s.Expand(v)
		w, explained := i.newWalker(v, n), 0
		for k := range cases {
			if ctx.Err() != nil {
				err = ctx.Err()
				return
			}
			r := w.judge(ctx, &cases[k], n)
			switch {
			case r.Passed() || explained == mostExplained:
				r.Explanation = nil
			default:
				explained++
			}
			all = append(all, r)
		}
	})
	return all, err
}

// judge judges a case. Why of its Result is the error, if there is one.
func (w *walker) judge(ctx context.Context, c *suite.Case, n NodeSettings) suite.Result {
	e, err := w.of(ctx, c, n)
	if err != nil {
		return suite.Result{Case: *c, Got: "not known", Why: err.Error()}
	}
	return c.Judge(w.view, e)
}

// of explains the way of a case.
func (w *walker) of(ctx context.Context, c *suite.Case, n NodeSettings) (*path.Explanation, error) {
	client := connection.Client{Subject: c.Client}
	if c.Elsewhere != nil {
		client = *c.Elsewhere
	}
	way := Way{
		Client:    &client,
		Target:    c.Peer.Target,
		Service:   c.Peer.Service,
		Message:   c.Message,
		Namespace: c.Namespace,
		To:        c.Pod,
		DNS:       Question{Subject: c.Client, Libc: dnsconfig.Glibc, Node: n},
	}
	switch {
	case c.Name == "":
		return w.path(ctx, &way)
	case c.Elsewhere != nil:
		return nil, errors.New("names without a port are looked up by Pods, and the client is none")
	}
	way.DNS.Name = c.Name
	return path.OfName(w.explain(ctx, w.world.Linter, way.DNS)), nil
}

// WriteSuite writes a first suite: what the cluster allows today. Services and routes are those of a namespace, "" is
// all.
func (i *Inspector) WriteSuite(ctx context.Context, out io.Writer, namespace string, n NodeSettings) (err error) {
	i.store.View(func(v *cluster.View) {
		w, d := i.newWalker(v, n), suite.NewDraft(v, namespace)
		judge := func(c *suite.Case) *path.Explanation {
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				return nil
			}
			e, unclear := w.of(ctx, c, n)
			if unclear != nil {
				return nil // such as a client whose node is not known
			}
			return e
		}
		d.Services(judge)
		d.Routes(judge)
		if err == nil {
			err = d.Write(out)
		}
	})
	return err
}
