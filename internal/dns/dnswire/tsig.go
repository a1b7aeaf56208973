package dnswire

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/binary"
	"errors"
	"hash"
	"time"

	"github.com/miekg/dns"

	"portolan.dev/portolan/internal/dns/dnsname"
)

// TSIGAlgorithm is the name of a signature algorithm (RFC 8945, section 6),
// without the closing dot.
type TSIGAlgorithm string

// Algorithms: those of SHA-2.
const (
	HMACSHA224 TSIGAlgorithm = "hmac-sha224"
	HMACSHA256 TSIGAlgorithm = "hmac-sha256"
	HMACSHA384 TSIGAlgorithm = "hmac-sha384"
	HMACSHA512 TSIGAlgorithm = "hmac-sha512"
)

var tsigHashes = map[TSIGAlgorithm]func() hash.Hash{
	HMACSHA224: sha256.New224,
	HMACSHA256: sha256.New,
	HMACSHA384: sha512.New384,
	HMACSHA512: sha512.New,
}

// IsKnown reports whether the algorithm is supported.
func (a TSIGAlgorithm) IsKnown() bool { return tsigHashes[a] != nil }

// TSIGKey is a secret that two servers share. Its algorithm must be known.
type TSIGKey struct {
	Name      dnsname.Name
	Algorithm TSIGAlgorithm
	Secret    []byte
}

// TSIGError is an error of a signature (RFC 8945, section 3).
type TSIGError uint16

// Errors of signatures. A response with one of them has the code NotAuth.
const (
	ErrBadSig   = TSIGError(dns.RcodeBadSig)
	ErrBadKey   = TSIGError(dns.RcodeBadKey)
	ErrBadTime  = TSIGError(dns.RcodeBadTime)
	ErrBadTrunc = TSIGError(dns.RcodeBadTrunc)
)

var tsigWords = map[TSIGError]string{
	ErrBadSig:   "the signature is wrong (BADSIG)",
	ErrBadKey:   "the key is unknown (BADKEY)",
	ErrBadTime:  "the clocks differ (BADTIME)",
	ErrBadTrunc: "the signature is cut (BADTRUNC)",
}

func (e TSIGError) Error() string { return tsigWords[e] }

// ErrUnsigned reports that a message that must be signed is not.
var ErrUnsigned = errors.New("the message is not signed")

// tsigFudge is how far the clocks of two servers may differ, in seconds (RFC
// 8945, section 10).
const tsigFudge = 300

// TSIG is the TSIG record of a message (RFC 8945, section 4.2). Its slices
// refer to the message.
type TSIG struct {
	Key       dnsname.Name
	Algorithm dnsname.Name
	Error     TSIGError
	Other     []byte

	signed     uint64 // Unix time in seconds
	fudge      uint16
	mac        []byte
	originalID uint16
	start      int // offset of the record in the message
}

// MessageLen returns the length of the message without the record.
func (t *TSIG) MessageLen() int { return t.start }

// HasTSIG reports whether the query ends with a TSIG record.
func (q *Query) HasTSIG() bool { return q.tsig }

// ReadTSIG parses the TSIG record of a message; it returns nil if there is
// none. It fails with ErrMalformed.
func ReadTSIG(message []byte) (*TSIG, error) {
	if len(message) < HeaderLen {
		return nil, ErrMalformed
	}
	off, records := HeaderLen, 0
	for range binary.BigEndian.Uint16(message[4:]) {
		n, ok := skipName(message[off:])
		if off += n + 4; !ok || off > len(message) {
			return nil, ErrMalformed
		}
	}
	for s := Answer; s <= Additional; s++ {
		records += int(binary.BigEndian.Uint16(message[4+2*s:]))
	}
	for ; records > 0; records-- {
		n, ok := skipName(message[off:])
		fixed := off + n
		if !ok || fixed+recordHead > len(message) {
			return nil, ErrMalformed
		}
		end := fixed + recordHead + int(binary.BigEndian.Uint16(message[fixed+8:]))
		if end > len(message) {
			return nil, ErrMalformed
		}
		if Type(binary.BigEndian.Uint16(message[fixed:])) == typeTSIG {
			// It must be the last record of the additional section (RFC 8945,
			// section 5.1).
			if records > 1 || end != len(message) || binary.BigEndian.Uint16(message[10:]) == 0 {
				return nil, ErrMalformed
			}
			return readTSIG(message, off, fixed)
		}
		off = end
	}
	return nil, nil
}

// tsigFixed is the length of a TSIG record's RDATA without its names, MAC and
// other data.
const tsigFixed = 6 + 2 + 2 + 2 + 2 + 2

// readTSIG parses the TSIG record that begins at start, has its type at fixed
// and ends the message.
func readTSIG(message []byte, start, fixed int) (*TSIG, error) {
	var buf [dnsname.MaxWire]byte
	if _, ok := endOfName(message, start); !ok || Class(binary.BigEndian.Uint16(message[fixed+2:])) != classANY {
		return nil, ErrMalformed
	}
	t := &TSIG{start: start}
	t.Key, _, _ = dnsname.FromWire(append(appendName(buf[:0], message, start), 0))
	rdata := message[fixed+recordHead:]
	algorithm, n, err := dnsname.FromWire(rdata)
	if err != nil || len(rdata) < n+tsigFixed {
		return nil, ErrMalformed
	}
	t.Algorithm, rdata = algorithm, rdata[n:]
	t.signed = binary.BigEndian.Uint64(rdata) >> 16
	t.fudge = binary.BigEndian.Uint16(rdata[6:])
	size := int(binary.BigEndian.Uint16(rdata[8:]))
	if len(rdata) < tsigFixed+size {
		return nil, ErrMalformed
	}
	t.mac, rdata = rdata[10:10+size], rdata[10+size:]
	t.originalID = binary.BigEndian.Uint16(rdata)
	t.Error = TSIGError(binary.BigEndian.Uint16(rdata[2:]))
	if t.Other = rdata[6:]; len(t.Other) != int(binary.BigEndian.Uint16(rdata[4:])) {
		return nil, ErrMalformed
	}
	return t, nil
}

// TSIGExchange signs or verifies the messages of one exchange in order: the
// query, then the reply's messages. Only one goroutine at a time may use it.
type TSIGExchange struct {
	key      *TSIGKey
	messages int       // signed or verified so far
	mac      []byte    // of the last signed message
	digest   hash.Hash // covers the unsigned messages so far; nil if there are none
	unsigned int       // number of unsigned messages
}

// NewExchange begins an exchange.
func (k *TSIGKey) NewExchange() *TSIGExchange { return &TSIGExchange{key: k} }

// Overhead returns the largest number of octets that Sign adds to a message.
func (k *TSIGKey) Overhead() int {
	return k.Name.WireLen() + recordHead + len(k.Algorithm) + 2 + tsigFixed + tsigHashes[k.Algorithm]().Size() + timeLen
}

// timeLen is the length of a time in TSIG records.
const timeLen = 6

// Sign appends a TSIG record to message, the next one of the exchange.
func (x *TSIGExchange) Sign(message []byte, now time.Time) []byte {
	return x.sign(message, &TSIG{signed: uint64(now.Unix())})
}

// SignBadTime is Sign for the reply to a query with a wrong time. The record
// carries the server's time (RFC 8945, section 5.2.3).
func (x *TSIGExchange) SignBadTime(message []byte, query *TSIG, now time.Time) []byte {
	return x.sign(message, &TSIG{
		signed: query.signed, Error: ErrBadTime,
		Other: appendTime(nil, uint64(now.Unix())),
	})
}

func (x *TSIGExchange) sign(message []byte, t *TSIG) []byte {
	t.Key, t.Algorithm = x.key.Name, x.key.algorithm()
	t.fudge, t.originalID, t.start = tsigFudge, binary.BigEndian.Uint16(message), len(message)
	t.mac = x.sum(message, t, binary.BigEndian.Uint16(message[10:]))
	return t.append(message)
}

// AppendTSIGError appends a TSIG record without signature to the reply to a
// query that failed verification (RFC 8945, section 5.3.2).
func AppendTSIGError(message []byte, query *TSIG, why TSIGError) []byte {
	t := TSIG{
		Key: query.Key, Algorithm: query.Algorithm, Error: why,
		signed: query.signed, fudge: query.fudge, originalID: binary.BigEndian.Uint16(message),
	}
	return t.append(message)
}

// append appends t to message.
func (t *TSIG) append(message []byte) []byte {
	b := t.Key.AppendWire(message)
	b = binary.BigEndian.AppendUint16(b, uint16(typeTSIG))
	b = binary.BigEndian.AppendUint16(b, uint16(classANY))
	b = binary.BigEndian.AppendUint32(b, 0) // TTL
	b = binary.BigEndian.AppendUint16(b, uint16(t.Algorithm.WireLen()+tsigFixed+len(t.mac)+len(t.Other)))
	b = t.Algorithm.AppendWire(b)
	b = appendTime(b, t.signed)
	b = binary.BigEndian.AppendUint16(b, t.fudge)
	b = binary.BigEndian.AppendUint16(b, uint16(len(t.mac)))
	b = append(b, t.mac...)
	b = binary.BigEndian.AppendUint16(b, t.originalID)
	b = binary.BigEndian.AppendUint16(b, uint16(t.Error))
	b = binary.BigEndian.AppendUint16(b, uint16(len(t.Other)))
	b = append(b, t.Other...)
	binary.BigEndian.PutUint16(b[10:], binary.BigEndian.Uint16(b[10:])+1)
	return b
}

func appendTime(b []byte, seconds uint64) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(seconds>>32))
	return binary.BigEndian.AppendUint32(b, uint32(seconds))
}

func (k *TSIGKey) algorithm() dnsname.Name { return dnsname.MustParse(string(k.Algorithm)) }

// maxUnsigned is how many messages of a reply may be unsigned in a row (RFC
// 8945, section 5.3.1).
const maxUnsigned = 99

// Verify checks the signature of message, the next one of the exchange. It
// fails with a TSIGError, ErrUnsigned or ErrMalformed. Then the exchange must
// not be used any more, except after ErrBadTime, because the reply to that is
// signed. After the first message of a reply some may be unsigned; see
// LastSigned.
func (x *TSIGExchange) Verify(message []byte, now time.Time) error {
	t, err := ReadTSIG(message)
	switch {
	case err != nil:
		return err
	case t == nil:
		return x.skip(message)
	case t.Key != x.key.Name || t.Algorithm != x.key.algorithm():
		return ErrBadKey
	case t.Error != 0 && len(t.mac) == 0:
		return t.Error // of a reply, and not authenticated
	}
	size := tsigHashes[x.key.Algorithm]().Size()
	if len(t.mac) > size || len(t.mac) < max(10, size/2) { // RFC 8945, section 5.2.2.1
		return ErrMalformed
	}
	mac := x.sum(message, t, binary.BigEndian.Uint16(message[10:])-1)
	switch {
	case !hmac.Equal(mac[:len(t.mac)], t.mac):
		return ErrBadSig
	case t.Error != 0:
		return t.Error
	case max(t.signed, uint64(now.Unix()))-min(t.signed, uint64(now.Unix())) > uint64(t.fudge):
		return ErrBadTime
	case len(t.mac) < size:
		return ErrBadTrunc
	}
	return nil
}

// skip accepts a message without signature.
func (x *TSIGExchange) skip(message []byte) error {
	if x.messages < 2 || x.unsigned == maxUnsigned {
		return ErrUnsigned
	}
	x.begin()
	x.digest.Write(message)
	x.unsigned++
	return nil
}

// LastSigned reports whether the last message was signed, which authenticates
// all before it. The last message of a reply must be signed.
func (x *TSIGExchange) LastSigned() bool { return x.unsigned == 0 }

// begin begins the digest of a message.
func (x *TSIGExchange) begin() {
	if x.digest != nil {
		return
	}
	x.digest = hmac.New(tsigHashes[x.key.Algorithm], x.key.Secret)
	if x.messages > 0 {
		x.digest.Write(binary.BigEndian.AppendUint16(nil, uint16(len(x.mac))))
		x.digest.Write(x.mac)
	}
}

// sum computes the MAC of a message, which had the given number of additional
// records before it was signed, with the variables of t (RFC 8945, section
// 4.3), and stores it for the next message.
func (x *TSIGExchange) sum(message []byte, t *TSIG, additional uint16) []byte {
	x.begin()
	var header [HeaderLen]byte
	copy(header[:], message)
	binary.BigEndian.PutUint16(header[:], t.originalID)
	binary.BigEndian.PutUint16(header[10:], additional)
	x.digest.Write(header[:])
	x.digest.Write(message[HeaderLen:t.start])
	x.digest.Write(x.variables(t))
	x.mac = x.digest.Sum(nil)
	x.digest, x.unsigned = nil, 0
	x.messages++
	return x.mac
}

// variables returns the fields of t that are signed: after the first message of
// a reply, the times only (section 5.3.1).
func (x *TSIGExchange) variables(t *TSIG) []byte {
	if x.messages > 1 {
		return binary.BigEndian.AppendUint16(appendTime(nil, t.signed), t.fudge)
	}
	b := t.Key.AppendWire(nil)
	b = binary.BigEndian.AppendUint16(b, uint16(classANY))
	b = binary.BigEndian.AppendUint32(b, 0) // TTL
	b = t.Algorithm.AppendWire(b)
	b = binary.BigEndian.AppendUint16(appendTime(b, t.signed), t.fudge)
	b = binary.BigEndian.AppendUint16(b, uint16(t.Error))
	b = binary.BigEndian.AppendUint16(b, uint16(len(t.Other)))
	return append(b, t.Other...)
}
