package respond

import (
	"crypto/x509"
	"net/netip"
	"time"

	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/zone"
)

// Transport is the protocol by which a query came.
type Transport uint8

// The transports.
const (
	UDP Transport = iota
	TCP
	TLS
	HTTPS
)

// String is the transport's name in logs and metrics.
func (t Transport) String() string { return transportNames[t] }

// Client is the sender of a query.
type Client struct {
	Addr      netip.Addr
	Port      uint16
	Transport Transport
	// Certificate is the client's verified certificate; nil without one.
	Certificate *x509.Certificate
}

// AddrPort is the client's address and port.
func (c Client) AddrPort() netip.AddrPort { return netip.AddrPortFrom(c.Addr, c.Port) }

// exchange holds the facts of one query. The stage that finds a fact sets it,
// once; what a stage decides is its verdict.
type exchange struct {
	client    Client
	packet    []byte         // the query as received
	query     *dnswire.Query // set by validate
	start     time.Time      // of this pass
	replay    bool           // upstream replies have come since the query was deferred
	cookie    cookie         // set by validate
	signature *signature     // set by authenticate; nil when the query has none
}

// wantsDNSSEC reports whether the client checks signatures (RFC 3225).
func (x *exchange) wantsDNSSEC() bool { return x.query.EDNS.Flags&dnswire.FlagDO != 0 }

// wantsRecursion reports whether the client asks for names outside the zones
// served here.
func (x *exchange) wantsRecursion() bool { return x.query.Flags&dnswire.FlagRD != 0 }

// verdict is what a stage decides about a query. The zero value is SERVFAIL.
type verdict struct {
	outcome       outcome
	authoritative bool         // AA: the answer is from the zones served here
	truncated     bool         // TC: parts of the answer are missing
	authentic     bool         // AD: upstreams validated all records
	searchEcho    bool         // the response repeats the option with search paths
	search        searchSource // for statistics
	scope         subnetScope
	ede           *zone.EDE    // the reason; nil without one
	stale         *zone.EDE    // the answer is from stale data; nil when not
	zone          *dnswire.SOA // of the query's name, for statistics; nil outside all zones
	cause         cause        // for evidence
}

// cause is why there is no answer, or one without records, where the outcome and the EDE do not
// say it.
type cause uint8

const (
	noCause  cause = iota
	notQuery       // the packet is no query, and has no question
	deniedAccess
	overRate
)

// outcome is the kind of a verdict.
type outcome uint8

const (
	failed outcome = iota // SERVFAIL
	dropped
	answered
	denied
	malformed
	notImplemented
	refused
	badVersion
	badCookie
	notAuthoritative
	pending      // upstream replies are missing
	transferring // the answer is several messages
)

// rcodes are the outcomes on the wire. A dropped or pending query has none.
var rcodes = [...]dnswire.RCode{
	failed:           dnswire.ServFail,
	answered:         dnswire.NoError,
	denied:           dnswire.NXDomain,
	malformed:        dnswire.FormErr,
	notImplemented:   dnswire.NotImp,
	refused:          dnswire.Refused,
	badVersion:       dnswire.BadVers,
	badCookie:        dnswire.BadCookie,
	notAuthoritative: dnswire.NotAuth,
	transferring:     dnswire.NoError,
}
