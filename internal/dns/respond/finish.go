package respond

import (
	"encoding/binary"
	"time"

	"portolan.dev/portolan/internal/dns/dnswire"
)

// start begins the response. Room for the OPT record is kept free, all but an
// error, which is said only where room is left.
func (w *Worker) start(x *exchange, buf []byte) {
	limit := dnswire.MaxMessage
	if x.client.Transport == UDP {
		limit = dnswire.MinUDPSize
		if w.query.EDNS.Present {
			limit = min(max(limit, int(w.query.EDNS.UDPSize)), w.cfg.UDPSize)
		}
	}
	w.response.Start(buf, &w.query, limit)
	w.response.Reserve(w.optLen(x) + x.signature.length)
}

const keepaliveLen = 2

// optLen is how long the OPT record is, but for an error and padding.
func (w *Worker) optLen(x *exchange) int {
	e := &w.query.EDNS
	if !e.Present {
		return 0
	}
	n := dnswire.OPTLen
	if w.cookie.asked {
		n += dnswire.OptionLen(cookieLen)
	}
	if w.saysNSID() {
		n += dnswire.OptionLen(len(w.cfg.NSID))
	}
	if w.saysKeepalive(x) {
		n += dnswire.OptionLen(keepaliveLen)
	}
	if x.echoes {
		n += dnswire.OptionLen(0)
	}
	if x.scoped {
		n += dnswire.OptionLen(len(e.Subnet))
	}
	return n
}

func (w *Worker) saysNSID() bool { return w.query.EDNS.NSID && w.cfg.NSID != "" }

// saysKeepalive: on connections only (RFC 7828, section 3.2.1) that are DNS' own.
func (w *Worker) saysKeepalive(x *exchange) bool {
	return w.query.EDNS.Keepalive && (x.client.Transport == TCP || x.client.Transport == TLS) && w.cfg.TCPIdle > 0
}

// finish turns the outcome into a message.
func (w *Worker) finish(x *exchange) []byte {
	rcode := rcodes[x.outcome]
	if w.query.EDNS.Present {
		w.addOPT(x, rcode)
	}
	var flags uint16
	if x.ours {
		flags |= dnswire.FlagAA
	}
	if x.truncated {
		flags |= dnswire.FlagTC
	}
	if w.cfg.Upstreams != nil {
		flags |= dnswire.FlagRA
	}
	if x.validated && (x.outcome == answered || x.outcome == denied) && (w.query.Flags&dnswire.FlagAD != 0 || w.wantsSigned()) {
		flags |= dnswire.FlagAD // RFC 6840, section 5.8
	}
	return x.sign(w.response.Finish(flags, rcode))
}

func (w *Worker) addOPT(x *exchange, rcode dnswire.RCode) {
	r := &w.response
	r.Reserve(-w.optLen(x))
	opt := r.Len()
	r.AddOPT(uint16(w.cfg.UDPSize), rcode, w.query.EDNS.Flags&dnswire.FlagDO)
	if w.cookie.asked {
		r.AddOption(opt, dnswire.OptionCookie, w.cookie.reply[:])
	}
	if w.saysNSID() {
		r.AddOptionString(opt, dnswire.OptionNSID, w.cfg.NSID)
	}
	if w.saysKeepalive(x) {
		var units [keepaliveLen]byte // of 100 ms
		binary.BigEndian.PutUint16(units[:], uint16(min(w.cfg.TCPIdle/(100*time.Millisecond), 0xffff)))
		r.AddOption(opt, dnswire.OptionKeepalive, units[:])
	}
	if x.echoes {
		r.AddOption(opt, w.query.SearchOption, nil)
	}
	if x.scoped {
		r.AddSubnet(opt, w.query.EDNS.Subnet, x.scope)
	}
	if x.stale != nil {
		r.AddEDE(opt, x.stale.Code, x.stale.Text)
	}
	if x.why != nil {
		r.AddEDE(opt, x.why.Code, x.why.Text)
	}
	// Padding goes where nobody can look inside (RFC 7830, section 6), in the
	// blocks that RFC 8467, section 4.1 recommends.
	const paddingBlock = 468
	if w.query.EDNS.Padding && x.client.Transport >= TLS {
		r.AddPadding(opt, paddingBlock)
	}
}
