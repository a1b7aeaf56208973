package proxy

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"portolan.dev/portolan/internal/gateway/table"
)

// isGRPC reports whether a request is one of gRPC, whose client looks for the status in fields (gRPC over HTTP/2,
// "Requests").
func isGRPC(r *http.Request) bool {
	of, ok := strings.CutPrefix(r.Header.Get("Content-Type"), "application/grpc")
	return ok && r.ProtoMajor >= 2 && (of == "" || of[0] == '+' || of[0] == ';')
}

// Statuses of gRPC (google.rpc.Code).
const (
	unknownCode = iota + 2
	_
	deadlineExceeded
	_
	_
	permissionDenied
	resourceExhausted
	_
	_
	_
	unimplemented
	internalCode
	unavailable
	_
	unauthenticated
)

// grpcCode returns the status of gRPC for an answer of the proxy: as gRPC maps those of HTTP ("HTTP to gRPC Status Code
// Mapping"), but that backends that are invalid are unavailable (GRPCRouteRule.backendRefs), and that the time of a
// request can be over.
func grpcCode(status int) int {
	switch status {
	case http.StatusBadRequest:
		return internalCode
	case http.StatusUnauthorized:
		return unauthenticated
	case http.StatusForbidden:
		return permissionDenied
	case http.StatusNotFound:
		return unimplemented
	case http.StatusRequestEntityTooLarge:
		return resourceExhausted
	case http.StatusGatewayTimeout:
		return deadlineExceeded
	case http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable:
		return unavailable
	}
	return unknownCode
}

// answerGRPC answers a request of gRPC for the proxy itself ("Trailers-Only" in gRPC over HTTP/2, "Responses").
func answerGRPC(w http.ResponseWriter, status int, reason table.Reason) {
	head := w.Header()
	head.Set("Content-Type", "application/grpc")
	head.Set("Grpc-Status", strconv.Itoa(grpcCode(status)))
	head.Set("Grpc-Message", url.PathEscape(string(reason)))
	w.WriteHeader(http.StatusOK)
}
