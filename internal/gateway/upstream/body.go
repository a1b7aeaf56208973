package upstream

import (
	"errors"
	"io"
	"net/http"

	"portolan.dev/portolan/internal/gateway/wire"
)

// body reads the body of a response (RFC 9112, sections 6 and 7).
type body struct {
	conn       *conn
	chunked    bool
	untilClose bool
	left       int64 // octets of the body, or of the present chunk
	chunks     wire.Chunks
	err        error // io.EOF at the end
}

// errNotReceived: the endpoint would have to be waited for.
var errNotReceived = errors.New("not received")

// nobody is read in place of an endpoint that is not to be waited for.
type nobody struct{}

// Read implements io.Reader.
func (nobody) Read([]byte) (int, error) { return 0, errNotReceived }

// Next implements stream.
func (x *exchange) Next() ([]byte, error) {
	p, err := x.body.next(x.conn)
	return p, x.broken(err)
}

// NextReceived implements stream.
func (x *exchange) NextReceived() ([]byte, error) {
	p, err := x.body.next(nobody{})
	if errors.Is(err, errNotReceived) {
		return nil, nil
	}
	return p, x.broken(err)
}

// broken returns the error of a body that is broken off.
func (x *exchange) broken(err error) error {
	if err == nil || err == io.EOF { //nolint:errorlint // it is that of next
		return err
	}
	if _, ok := errors.AsType[*wire.Error](err); ok {
		return &Error{Malformed, err}
	}
	return x.lost(err)
}

// next returns the next octets, which it may read.
func (b *body) next(from io.Reader) ([]byte, error) {
	if b.err != nil {
		return nil, b.err
	}
	in := &b.conn.in
	err := b.fill(from)
	if err == nil && b.chunked && b.left == 0 {
		if b.left, err = b.chunks.Next(in, from, sectionLimits); err == nil && b.left == 0 {
			b.err = io.EOF
			return nil, b.err
		}
	}
	if err == nil {
		err = b.fill(from) // the chunk may be still to come
	}
	switch {
	case err == nil:
	case errors.Is(err, errNotReceived):
		return nil, err
	case errors.Is(err, io.EOF) && !b.untilClose:
		b.err = io.ErrUnexpectedEOF
		return nil, b.err
	default:
		b.err = err
		return nil, b.err
	}
	p := in.Received()
	if !b.untilClose {
		p = p[:min(int64(len(p)), b.left)]
		b.left -= int64(len(p))
	}
	in.R += len(p)
	if b.left == 0 && !b.chunked && !b.untilClose {
		b.err = io.EOF
	}
	return p, b.err
}

// fill receives something if there is nothing.
func (b *body) fill(from io.Reader) error {
	if !b.conn.in.Empty() {
		return nil
	}
	if _, ok := from.(nobody); ok {
		return errNotReceived
	}
	return b.conn.fill()
}

// Trailer implements stream.
func (x *exchange) Trailer() http.Header { return x.body.chunks.Trailer }
