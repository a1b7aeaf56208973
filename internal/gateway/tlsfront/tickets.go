package tlsfront

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"slices"

	"portolan.dev/portolan/internal/gateway/table"
)

// tickets encrypts and decrypts session tickets (RFC 8446, section 4.6.1; RFC 5077), by keys of its own, which
// crypto/tls rotates each day, or by those that gateways share.
type tickets struct{ keys tls.Config }

// SetTicketKeys has sessions that began at any gateway with one of the keys be resumed here. Tickets are encrypted with
// the first. Without any call, the keys are those of this process.
func (f *Front) SetTicketKeys(keys [][32]byte) { f.tickets.keys.SetSessionTicketKeys(keys) }

// resumeAt has a configuration resume the sessions of a socket, and no others: listeners of other sockets may accept
// other clients.
func (t *tickets) resumeAt(at table.Socket, config *tls.Config) {
	mark := fmt.Appendf(nil, "portolan.dev socket %v", at)
	config.WrapSession = func(state tls.ConnectionState, session *tls.SessionState) ([]byte, error) {
		session.Extra = append(session.Extra, mark)
		return t.keys.EncryptTicket(state, session)
	}
	config.UnwrapSession = func(ticket []byte, state tls.ConnectionState) (*tls.SessionState, error) {
		session, err := t.keys.DecryptTicket(ticket, state)
		if session == nil || !slices.ContainsFunc(session.Extra, func(e []byte) bool { return bytes.Equal(e, mark) }) {
			return nil, err
		}
		return session, err
	}
}
