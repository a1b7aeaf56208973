// Command rpcbackend serves gRPC over HTTP/2 without TLS. It prints the address at which it listens. Calls of a path
// that ends with Unary are answered with the message that they send; others with a stream of it that has no end.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
)

func main() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		fmt.Println(l.Addr())
		server := http.Server{Handler: http.HandlerFunc(serve), Protocols: new(http.Protocols)}
		server.Protocols.SetUnencryptedHTTP2(true)
		err = server.Serve(l)
	}
	fmt.Fprintln(os.Stderr, "rpcbackend:", err)
	os.Exit(1)
}

func serve(w http.ResponseWriter, r *http.Request) {
	message, err := io.ReadAll(r.Body) // with its prefix
	if err != nil {
		return
	}
	w.Header().Set("Content-Type", "application/grpc")
	if strings.HasSuffix(r.URL.Path, "Unary") {
		_, _ = w.Write(message) // the client may have gone
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
		return
	}
	flush := http.NewResponseController(w)
	for err == nil {
		if _, err = w.Write(message); err == nil {
			err = flush.Flush()
		}
	}
}
