package respond

import (
	"bytes"
	"context"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/dns/dnswire"
)

// Gate holds answers back until their addresses can be reached, where policies
// allow packets by domain name; *fqdn.Gate does. It is called by several
// goroutines.
type Gate interface {
	// Hold examines an answer to client that may have addresses. If it has to wait,
	// Hold returns what waits, for a short time; nil otherwise. It does not block,
	// and retains neither name nor answer.
	//
	// name is the name whose addresses the client receives, in lower-case wire form
	// without the root's closing zero octet: the question's, or that at which the
	// search for it ended. The aliases that lead on from it are in the answer.
	Hold(client netip.Addr, name, answer []byte) (wait func(context.Context))
}

// hold shows an answer to the Gate, if there is one. It returns what waits until the
// answer may be sent; nil if it may be sent at once.
func (w *Worker) hold(x *exchange, v *verdict, answer []byte) (wait func(context.Context)) {
	if w.cfg.Gate == nil || v.outcome != answered {
		return nil
	}
	return w.show(x, v, answer)
}

func (w *Worker) show(x *exchange, v *verdict, answer []byte) (wait func(context.Context)) {
	switch x.query.Type {
	case dnswire.TypeA, dnswire.TypeAAAA, dnswire.TypeANY:
		return w.cfg.Gate.Hold(x.client.Addr, w.foundName(x, v, answer), answer)
	}
	return nil
}

// foundName returns the name that the records of an answer are of. An alias that a
// search made is not one that the owner of a name made: the name that was found
// counts, and not the one that was searched for.
func (w *Worker) foundName(x *exchange, v *verdict, answer []byte) []byte {
	s := &w.searcher
	switch {
	case v.search == notSearched:
		return x.query.QName()
	case s.found != nil:
		return s.found
	}
	// Upstreams searched. Their alias, if any, leads to a name of the search.
	r := dnswire.NewAnswerReader(answer)
	if r.Next() && r.Type() == dnswire.TypeCNAME {
		target := r.AppendTarget(s.target[0][:0])
		for i := range s.of.Len() {
			if name := s.of.Append(s.name[:0], i); name != nil && bytes.Equal(name, target) {
				return name
			}
		}
	}
	return s.of.Name()
}

// held is an answer that waits.
func held(answer []byte, wait func(context.Context)) *Deferred {
	return &Deferred{held: slices.Clone(answer), wait: wait}
}
