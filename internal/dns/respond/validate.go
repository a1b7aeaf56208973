package respond

import (
	"errors"

	"portolan.dev/portolan/internal/dns/dnswire"
)

// validate parses the query, reads its cookie and begins the response in buf.
// done reports whether v is final: the packet is no query, or one that no later
// stage could answer.
func (w *Worker) validate(x *exchange, buf []byte) (v verdict, done bool) {
	q := x.query
	if q.ParseHeader(x.packet) != nil || q.Flags&dnswire.FlagQR != 0 {
		return verdict{outcome: dropped, cause: notQuery}, true
	}
	err := q.ParseBody(x.packet)
	w.readCookie(x)
	w.startResponse(x, buf)
	switch {
	case q.Opcode == dnswire.OpcodeNotify && w.cfg.NotifyHandler == nil && w.cfg.Transfers != nil:
		return verdict{outcome: refused, ede: &notSecondary}, true
	case q.Opcode != dnswire.OpcodeQuery && (q.Opcode != dnswire.OpcodeNotify || w.cfg.NotifyHandler == nil):
		return verdict{outcome: notImplemented}, true
	case errors.Is(err, dnswire.ErrQuestions) && x.cookie.present && q.QuestionCount() == 0:
		// RFC 7873, section 5.4: a query for a cookie and nothing else.
		return verdict{outcome: answered}, true
	case err != nil:
		return verdict{outcome: malformed}, true
	case q.EDNS.Version != 0:
		return verdict{outcome: badVersion}, true
	case q.Type == dnswire.TypeOPT:
		return verdict{outcome: malformed}, true
	}
	return verdict{}, false
}
