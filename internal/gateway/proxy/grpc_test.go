package proxy

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"portolan.dev/portolan/internal/gateway/table"
)

// TestAnswerGRPC compares what clients of gRPC get from the proxy itself with GRPCRouteRule and with what gRPC makes of
// statuses of HTTP.
func TestAnswerGRPC(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		major       int
		contentType string
		status      int
		wantStatus  int
		wantCode    string
	}{
		"no route":                   {2, "application/grpc", 404, 200, "12"},
		"an invalid backend":         {2, "application/grpc+proto", 500, 200, "14"},
		"no endpoint":                {2, "application/grpc;x=y", 503, 200, "14"},
		"the time is over":           {2, "application/grpc", 504, 200, "4"},
		"without rights":             {2, "application/grpc", 403, 200, "7"},
		"without a password":         {2, "application/grpc", 401, 200, "16"},
		"too many":                   {2, "application/grpc", 429, 200, "14"},
		"a misdirected one":          {2, "application/grpc", 421, 200, "2"},
		"gRPC-Web is plain HTTP":     {2, "application/grpc-web", 404, 404, ""},
		"gRPC needs HTTP/2":          {1, "application/grpc", 404, 404, ""},
		"other requests over HTTP/2": {2, "application/json", 404, 404, ""},
	}
	for claim, test := range tests {
		r := httptest.NewRequest(http.MethodPost, "http://a.test/s/m", http.NoBody)
		r.ProtoMajor = test.major
		r.Header.Set("Content-Type", test.contentType)
		w := httptest.NewRecorder()
		x := &exchange{Record: Record{Request: r}}
		new(Proxy).answer(w, x, test.status, table.Reason("a reason: 100 %"))
		head := w.Result().Header
		if w.Code != test.wantStatus || head.Get("Grpc-Status") != test.wantCode || x.Reason == "" {
			t.Errorf("%s: answer(%d) of %q = %d, grpc-status %q; want %d, %q", claim, test.status, test.contentType, w.Code,
				head.Get("Grpc-Status"), test.wantStatus, test.wantCode)
		}
		if message := head.Get("Grpc-Message"); test.wantCode != "" && (message != "a%20reason:%20100%20%25" || w.Body.Len() > 0) {
			t.Errorf("%s: grpc-message %q and %d octets of a body", claim, message, w.Body.Len())
		}
	}
}
