package proxy

import (
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/gateway/upstream"
)

// respond gives the client a response. What came of its body is sent before more of it is waited for.
func (p *Proxy) respond(w *recorder, r *http.Request, x *exchange, res *upstream.Response) {
	var part []byte
	var err error
	if res.Length > 0 { // it can be an error still if there is no body
		part, err = res.Next()
	} else {
		part, err = res.NextReceived()
	}
	if err != nil && !errors.Is(err, io.EOF) && len(part) == 0 {
		clear(w.Header())
		p.fail(w, r, x, err)
		return
	}
	header := w.Header()
	if _, ok := header["Content-Type"]; !ok && r.ProtoMajor > 1 {
		header["Content-Type"] = nil // so that net/http guesses none
	}
	if res.Unread() && r.ProtoMajor == 1 { // the server may not see in time that it cannot be used again
		header["Connection"] = []string{"close"}
	}
	changeResponse(header, x)
	announced := header["Trailer"]
	w.WriteHeader(res.Status)
	for err == nil {
		if len(part) > 0 {
			p.write(w, r, x, part)
		}
		if part, err = res.NextReceived(); len(part) == 0 && err == nil {
			if w.flush() != nil {
				p.abort(x, ClientGone)
			}
			part, err = res.Next()
		}
	}
	if len(part) > 0 {
		p.write(w, r, x, part)
	}
	if !errors.Is(err, io.EOF) {
		p.abort(x, broken(r, err))
	}
	addTrailer(w, announced, res.Trailer())
}

// write sends a part of a body.
func (p *Proxy) write(w io.Writer, r *http.Request, x *exchange, part []byte) {
	if _, err := w.Write(part); err != nil && !errors.Is(err, http.ErrBodyNotAllowed) {
		p.abort(x, broken(r, nil))
	}
}

// broken returns why a response is broken off, if the endpoint's body has an error.
func broken(r *http.Request, err error) table.Reason {
	switch {
	case r.Context().Err() != nil || err == nil:
		return ClientGone
	case errors.Is(err, os.ErrDeadlineExceeded):
		return TimedOut
	}
	return BrokenOff
}

// addTrailer gives the client a trailer section. Of its fields some were announced.
func addTrailer(w *recorder, announced []string, trailer http.Header) {
	if len(trailer) == 0 {
		return
	}
	all := strings.Join(announced, ",")
	known := func(name string) bool {
		return slices.ContainsFunc(strings.Split(all, ","), func(one string) bool {
			return strings.EqualFold(strings.Trim(one, " \t"), name)
		})
	}
	for name := range trailer {
		if !known(name) {
			_ = w.flush() // so that the response is one that can have it
			break
		}
	}
	header := w.Header()
	clear(header)
	for name, values := range trailer {
		if known(name) {
			header[name] = values
		} else {
			header[http.TrailerPrefix+name] = values
		}
	}
}
