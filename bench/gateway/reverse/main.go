// Command reverse is a proxy as Go's library has it: http.Server and httputil.ReverseProxy. Its arguments are the
// address to listen at and the backend's; with a third, "h2c", it speaks HTTP/2 without TLS on both sides.
package main

import (
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"time"
)

// idle is how many connections to the backend wait for requests at most; the library's default is two.
const idle = 1024

func main() {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = idle, idle
	backend := &url.URL{Scheme: "http", Host: os.Args[2]}
	server := http.Server{
		Addr: os.Args[1], ReadHeaderTimeout: time.Minute,
		Handler: &httputil.ReverseProxy{
			Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(backend)
				r.Out.Host = r.In.Host
				r.SetXForwarded()
			},
			Transport: transport,
		},
	}
	if len(os.Args) > 3 && os.Args[3] == "h2c" {
		server.Protocols, transport.Protocols = new(http.Protocols), new(http.Protocols)
		server.Protocols.SetUnencryptedHTTP2(true)
		transport.Protocols.SetUnencryptedHTTP2(true)
	}
	fmt.Fprintln(os.Stderr, "reverse:", server.ListenAndServe())
	os.Exit(1)
}
