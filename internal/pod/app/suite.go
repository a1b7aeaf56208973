package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/pod/connection"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/path"
	"portolan.dev/portolan/internal/pod/suite"
	"portolan.dev/portolan/internal/support/suggest"
)

// mostExplained is the maximum number of cases that fail with an explanation: a suite for another cluster has
// suite.MostCases that fail, of up to some 10 KB each.
const mostExplained = 1000

// Test judges a suite, in one state of the model. The results have no explanations of what passed, nor of more than
// mostExplained that failed. The error has what of the suite names nothing in the cluster; the rest is judged.
func (i *Inspector) Test(ctx context.Context, s *suite.Suite, n NodeSettings) (all []suite.Result, err error) {
	explained := 0
	return i.test(ctx, s, n, func(_ int, r *suite.Result) bool {
		if r.Passed() || explained == mostExplained {
			return false
		}
		explained++
		return true
	})
}

// test judges a suite. The results have the explanations that keep reports true for.
func (i *Inspector) test(
	ctx context.Context, s *suite.Suite, n NodeSettings, keep func(int, *suite.Result) bool,
) (all []suite.Result, err error) {
	i.store.View(func(v *cluster.View) {
		cases, wrong := s.Expand(v)
		w, u := i.newWalker(v, n), unjudged{errs: []error{wrong}}
		for k := range cases {
			if ctx.Err() != nil {
				err = ctx.Err()
				return
			}
			c := &cases[k]
			e, wrong := w.of(ctx, c, n)
			if wrong != nil {
				u.add(c, wrong)
				continue
			}
			r := c.Judge(v, e)
			if !keep(k, &r) {
				r.Explanation = nil
			}
			all = append(all, r)
		}
		err = errors.Join(u.errs...)
	})
	return all, err
}

// unjudged collects why cases cannot be judged: for each test each reason once.
type unjudged struct {
	errs []error
	test *suite.Test
	told map[string]bool // of the test
}

func (u *unjudged) add(c *suite.Case, why error) {
	if u.test != c.Test {
		u.test, u.told = c.Test, make(map[string]bool)
	}
	if !u.told[why.Error()] {
		u.told[why.Error()] = true
		err := fmt.Errorf("%s → %s: %w", c.From, c.To, why)
		u.errs = append(u.errs, &suite.Error{File: c.Test.File, Line: c.Test.Line, Err: err})
	}
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
		e, err := w.path(ctx, &way)
		if errors.Is(err, errSeveralNodes) {
			err = errors.New("there are several Nodes: write at which the packets arrive, as in from: outside/NODE")
		}
		if err == nil && e.Connection != nil {
			if why, unread := e.Connection.Unread(); unread {
				err = errors.New(why)
			}
		}
		return e, err
	case c.Elsewhere != nil:
		return nil, errors.New("names without a port are looked up by Pods, and the client is none")
	}
	way.DNS.Name = c.Name
	return path.OfName(w.explain(ctx, w.world.Linter, way.DNS)), nil
}

// WriteSuite writes a first suite: what the cluster allows today. Services and routes are those of a namespace, "" is
// all. It returns an error if there is no such namespace, or if there are more than suite.MostDrafted ways to judge.
func (i *Inspector) WriteSuite(ctx context.Context, out io.Writer, namespace string, n NodeSettings) (err error) {
	i.store.View(func(v *cluster.View) {
		if err = checkNamespace(v, namespace); err != nil {
			return
		}
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
		if err = d.Services(judge); err != nil {
			return
		}
		d.Routes(judge)
		if err == nil {
			err = d.Write(out)
		}
	})
	return err
}

// checkNamespace returns an error if a namespace does not exist, unless it is "" or the Namespaces could not be read.
func checkNamespace(v *cluster.View, name string) error {
	if name == "" || v.Namespace(name) != nil || !v.Loaded(cluster.KindNamespace) {
		return nil
	}
	var names []string
	for n := range v.Namespaces() {
		names = append(names, n.Name)
	}
	slices.Sort(names)
	if near := suggest.Closest(name, names); near != "" {
		return fmt.Errorf("there is no namespace %s; did you mean %s?", name, near)
	}
	const most = 5
	if len(names) > most {
		names = append(names[:most], "others")
	}
	if len(names) == 0 {
		return fmt.Errorf("there is no namespace %s, nor another", name)
	}
	return fmt.Errorf("there is no namespace %s; there are %s", name, strings.Join(names, ", "))
}
