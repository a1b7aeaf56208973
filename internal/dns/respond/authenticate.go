package respond

import (
	"errors"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// signature is the query's TSIG record and what the response needs of it (RFC
// 8945).
type signature struct {
	record   *dnswire.TSIG
	key      dnsname.Name          // the root unless the signature is good
	exchange *dnswire.TSIGExchange // nil when the key is unknown
	err      dnswire.TSIGError
}

// authenticate checks the query's signature, if it has one and keys are
// configured (RFC 8945, section 5.2). done reports whether v is final: the
// signature is not good.
func (w *Worker) authenticate(x *exchange) (v verdict, done bool) {
	if w.cfg.Transfers == nil && w.cfg.NotifyHandler == nil || !x.query.HasTSIG() {
		return verdict{}, false
	}
	record, err := dnswire.ReadTSIG(x.packet)
	if err != nil || record == nil {
		return verdict{outcome: malformed}, true
	}
	s := &signature{record: record}
	x.signature = s
	key := w.findKey(record.Key)
	if key == nil {
		s.err = dnswire.ErrBadKey
		return verdict{outcome: notAuthoritative}, true
	}
	s.exchange = key.NewExchange()
	err = s.exchange.Verify(x.packet, x.start)
	if err == nil {
		s.key = key.Name
		w.response.Reserve(key.Overhead())
		return verdict{}, false
	}
	if bad, ok := errors.AsType[dnswire.TSIGError](err); ok {
		s.err = bad
		w.response.Reserve(key.Overhead())
		return verdict{outcome: notAuthoritative}, true
	}
	x.signature = nil
	return verdict{outcome: malformed}, true
}

// findKey returns the key of that name; nil when there is none.
func (w *Worker) findKey(name dnsname.Name) (key *dnswire.TSIGKey) {
	if w.cfg.NotifyHandler != nil {
		key = w.cfg.NotifyHandler.Key(name)
	}
	if key == nil && w.cfg.Transfers != nil {
		key = w.cfg.Transfers.Key(name)
	}
	return key
}

// sign signs the response to a signed query, or adds the error of its signature
// (RFC 8945, section 5.3).
func (w *Worker) sign(s *signature, response []byte) []byte {
	switch {
	case s.err == dnswire.ErrBadTime:
		return s.exchange.SignBadTime(response, s.record, w.cfg.Now())
	case s.err != 0:
		return dnswire.AppendTSIGError(response, s.record, s.err)
	}
	return s.exchange.Sign(response, w.cfg.Now())
}
