// Command upstream is a DNS server that has an address for every name. It is the
// upstream of resolvers in a measurement, and misbehaves on command.
//
// Over HTTP it returns the number of queries received, and accepts these commands:
//
//	good        answer all queries at once
//	loss 10     leave this percentage of the packets unanswered
//	dead        answer nothing
//	stall 3s    read nothing for this time, then answer what arrived meanwhile
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"time"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "`ADDR:PORT` of DNS, over UDP and TCP")
	control := flag.String("control", "127.0.0.1:0", "`ADDR:PORT` of commands, over HTTP")
	ttl := flag.Uint("ttl", 3600, "TTL of all answers, in `SECONDS`")
	flag.Parse()
	// Each server of packets has a thread that waits in system calls.
	const threads = 4
	runtime.GOMAXPROCS(threads)
	fmt.Fprintln(os.Stderr, "upstream:", run(*listen, *control, uint32(*ttl)))
	os.Exit(1)
}

// run returns only on an error.
func run(listen, control string, ttl uint32) error {
	address, err := netip.ParseAddrPort(listen)
	if err != nil {
		return err
	}
	fd, err := listenUDP(address)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	s := newServer(ttl)
	failed := make(chan error)
	go func() { failed <- s.servePackets(fd) }()
	go func() { failed <- s.serveConnections(listener) }()
	go func() { failed <- http.ListenAndServe(control, s) }()
	return <-failed
}

// ServeHTTP accepts a command, and returns the number of queries received.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		if err := s.obey(r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	fmt.Fprintln(w, s.asked.Load())
}

func (s *server) obey(body io.Reader) error {
	const longest = 100
	command, err := io.ReadAll(io.LimitReader(body, longest))
	if err != nil {
		return err
	}
	b, err := parseBehavior(string(command), time.Now())
	if err == nil {
		s.behavior.Store(b)
	}
	return err
}

// serveConnections serves TCP.
func (s *server) serveConnections(listener net.Listener) error {
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err == nil {
			go s.serveConnection(conn)
		}
	}
}
