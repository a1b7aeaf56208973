package respond

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/dchest/siphash"
)

// CookieSecret is the key of server cookies, shared by the servers of one
// address (RFC 9018, section 3).
type CookieSecret [16]byte

const (
	clientCookieLen = 8
	serverCookieLen = 16
	cookieLen       = clientCookieLen + serverCookieLen
	cookieHead      = clientCookieLen + 8 // what is hashed: with version and time
	cookieVersion   = 1
)

// Limits on a server cookie's age (RFC 9018, section 4.3).
const (
	cookieLife   = time.Hour
	cookieRenew  = 30 * time.Minute
	cookieFuture = 5 * time.Minute
)

// cookie is the query's COOKIE option as far as the response needs it.
type cookie struct {
	present bool
	good    bool            // the client has a server cookie of ours
	reply   [cookieLen]byte // the response's option
}

// readCookie prepares the reply to the query's cookie. A server cookie that is
// not ours, or too old, counts as absent: the reply has a new one.
func (w *Worker) readCookie(x *exchange) {
	c := x.query.EDNS.Cookie
	if c == nil || len(w.cfg.CookieSecrets) == 0 {
		return
	}
	x.cookie.present = true
	age, ok := w.cookieAge(c, x)
	x.cookie.good = ok
	if ok && age < cookieRenew {
		copy(x.cookie.reply[:], c)
		return
	}
	head, hash := x.cookie.reply[:cookieHead], x.cookie.reply[cookieHead:]
	copy(head, c[:clientCookieLen])
	head[clientCookieLen] = cookieVersion
	binary.BigEndian.PutUint32(head[cookieHead-4:], uint32(x.start.Unix()))
	hashCookie(w.cfg.CookieSecrets[0], head, x.client.Addr, hash)
}

// cookieAge returns how long ago the server cookie in c was made, if one of our
// secrets made it for this client and it is still good.
func (w *Worker) cookieAge(c []byte, x *exchange) (age time.Duration, good bool) {
	if len(c) != cookieLen || c[clientCookieLen] != cookieVersion {
		return 0, false
	}
	// Serial number arithmetic: the stamp is 32 bits of Unix time.
	age = time.Duration(int32(uint32(x.start.Unix())-binary.BigEndian.Uint32(c[cookieHead-4:]))) * time.Second
	if age > cookieLife || age < -cookieFuture {
		return 0, false
	}
	for _, secret := range w.cfg.CookieSecrets {
		var hash [8]byte
		hashCookie(secret, c[:cookieHead], x.client.Addr, hash[:])
		if bytes.Equal(hash[:], c[cookieHead:]) {
			return age, true
		}
	}
	return 0, false
}

// hashCookie writes the hash of a cookie's first part and the client's address
// (RFC 9018, section 4.4).
func hashCookie(secret CookieSecret, head []byte, client netip.Addr, hash []byte) {
	var input [cookieHead + 16]byte
	in := append(input[:0], head...)
	if client = client.Unmap(); client.Is4() {
		v4 := client.As4()
		in = append(in, v4[:]...)
	} else {
		v6 := client.As16()
		in = append(in, v6[:]...)
	}
	sum := siphash.Hash(binary.LittleEndian.Uint64(secret[:8]), binary.LittleEndian.Uint64(secret[8:]), in)
	binary.LittleEndian.PutUint64(hash, sum)
}
