package respond

import (
	"encoding/binary"
	"time"

	"portolan.dev/portolan/internal/dns/dnswire"
)

// startResponse begins the response in buf. It reserves room for the OPT record,
// except for Extended DNS Errors, which are left out without room.
func (w *Worker) startResponse(x *exchange, buf []byte) {
	limit := dnswire.MaxMessage
	if x.client.Transport == UDP {
		limit = dnswire.MinUDPSize
		if x.query.EDNS.Present {
			limit = min(max(limit, int(x.query.EDNS.UDPSize)), w.cfg.UDPSize)
		}
	}
	w.response.Start(buf, x.query, limit)
	w.response.Reserve(w.optLen(x, new(verdict)))
}

const keepaliveLen = 2

// optLen is the length of the OPT record, without Extended DNS Errors and
// padding, in octets.
func (w *Worker) optLen(x *exchange, v *verdict) int {
	e := &x.query.EDNS
	if !e.Present {
		return 0
	}
	n := dnswire.OPTLen
	if x.cookie.present {
		n += dnswire.OptionLen(cookieLen)
	}
	if w.sendsNSID(x) {
		n += dnswire.OptionLen(len(w.cfg.NSID))
	}
	if w.sendsKeepalive(x) {
		n += dnswire.OptionLen(keepaliveLen)
	}
	if v.searchEcho {
		n += dnswire.OptionLen(0)
	}
	if v.scope.known {
		n += dnswire.OptionLen(len(e.Subnet))
	}
	return n
}

func (w *Worker) sendsNSID(x *exchange) bool { return x.query.EDNS.NSID && w.cfg.NSID != "" }

// sendsKeepalive reports whether the response carries the keepalive option, which
// only DNS's own connections have (RFC 7828, section 3.2.1).
func (w *Worker) sendsKeepalive(x *exchange) bool {
	return x.query.EDNS.Keepalive && (x.client.Transport == TCP || x.client.Transport == TLS) && w.cfg.TCPIdle > 0
}

// finish makes the response message of a verdict. It is the only place that sets
// flags and adds the OPT and TSIG records.
func (w *Worker) finish(x *exchange, v *verdict) []byte {
	rcode := rcodes[v.outcome]
	if x.query.EDNS.Present {
		w.addOPT(x, v, rcode)
	}
	var flags uint16
	if v.authoritative {
		flags |= dnswire.FlagAA
	}
	if v.truncated {
		flags |= dnswire.FlagTC
	}
	if w.cfg.Upstreams != nil {
		flags |= dnswire.FlagRA
	}
	if v.authentic && (x.query.Flags&dnswire.FlagAD != 0 || x.wantsDNSSEC()) {
		flags |= dnswire.FlagAD // RFC 6840, section 5.8
	}
	response := w.response.Finish(flags, rcode)
	if x.signature != nil {
		return w.sign(x.signature, response)
	}
	return response
}

// addOPT adds the OPT record with its options.
func (w *Worker) addOPT(x *exchange, v *verdict, rcode dnswire.RCode) {
	r := &w.response
	r.Reserve(-w.optLen(x, v))
	opt := r.Len()
	r.AddOPT(uint16(w.cfg.UDPSize), rcode, x.query.EDNS.Flags&dnswire.FlagDO)
	if x.cookie.present {
		r.AddOption(opt, dnswire.OptionCookie, x.cookie.reply[:])
	}
	if w.sendsNSID(x) {
		r.AddOptionString(opt, dnswire.OptionNSID, w.cfg.NSID)
	}
	if w.sendsKeepalive(x) {
		var units [keepaliveLen]byte // of 100 ms
		binary.BigEndian.PutUint16(units[:], uint16(min(w.cfg.TCPIdle/(100*time.Millisecond), 0xffff)))
		r.AddOption(opt, dnswire.OptionKeepalive, units[:])
	}
	if v.searchEcho {
		r.AddOption(opt, x.query.SearchOption, nil)
	}
	if v.scope.known {
		r.AddSubnet(opt, x.query.EDNS.Subnet, v.scope.bits)
	}
	if v.stale != nil {
		r.AddEDE(opt, v.stale.Code, v.stale.Text)
	}
	if v.ede != nil {
		r.AddEDE(opt, v.ede.Code, v.ede.Text)
	}
	// Padding is for encrypted transports (RFC 7830, section 6), in the blocks that
	// RFC 8467, section 4.1 recommends.
	const paddingBlock = 468
	if x.query.EDNS.Padding && x.client.Transport >= TLS {
		r.AddPadding(opt, paddingBlock)
	}
}
