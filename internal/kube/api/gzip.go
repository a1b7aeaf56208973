package api

import (
	"io"
	"net/http"
	"strings"

	"github.com/klauspost/compress/gzip"
)

// unzipper requests compressed responses, which API servers use for large lists,
// and decompresses them. It takes half the time of net/http's own gzip, which
// saves a tenth of a start.
type unzipper struct{ http.RoundTripper }

func newUnzipper(rt http.RoundTripper) http.RoundTripper { return unzipper{rt} }

// RoundTrip sends req and returns the response with a decompressed body.
func (u unzipper) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("Accept-Encoding", "gzip")
	res, err := u.RoundTripper.RoundTrip(req)
	if err != nil || !strings.EqualFold(res.Header.Get("Content-Encoding"), "gzip") {
		return res, err
	}
	res.Header.Del("Content-Encoding")
	res.Header.Del("Content-Length")
	res.ContentLength, res.Uncompressed = -1, true
	res.Body = &zippedBody{body: res.Body}
	return res, nil
}

// zippedBody decompresses a body.
type zippedBody struct {
	body io.ReadCloser
	zip  *gzip.Reader // nil until the first Read
}

func (b *zippedBody) Read(p []byte) (n int, err error) {
	if b.zip == nil {
		if b.zip, err = gzip.NewReader(b.body); err != nil {
			return 0, err
		}
	}
	return b.zip.Read(p)
}

func (b *zippedBody) Close() error { return b.body.Close() }
