// Command backend serves bodies of fixed sizes over HTTP/1.1 as cheaply as Go can, so that what is measured is the
// proxy before it. It prints the address at which it listens. A path ends with the size of the body in octets;
// requests must have no body.
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"path"
	"strconv"
	"strings"
)

func main() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, "backend:", err)
		os.Exit(1)
	}
	fmt.Println(l.Addr())
	for {
		c, err := l.Accept()
		if err != nil {
			fmt.Fprintln(os.Stderr, "backend:", err)
			os.Exit(1)
		}
		go serve(c)
	}
}

// serve answers the requests of a connection.
func serve(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	responses := make(map[string][]byte) // by path
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		fields := strings.Fields(line)
		const method, target = 0, 1
		if len(fields) <= target || fields[method] != "GET" {
			return
		}
		for line != "\r\n" {
			if line, err = in.ReadString('\n'); err != nil {
				return
			}
		}
		if responses[fields[target]] == nil {
			responses[fields[target]] = response(fields[target])
		}
		if _, err := c.Write(responses[fields[target]]); err != nil {
			return
		}
	}
}

// response returns the response for a path.
func response(to string) []byte {
	size, err := strconv.Atoi(path.Base(to))
	if err != nil {
		return []byte("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
	}
	head := fmt.Appendf(
		nil,
		"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n",
		size,
	)
	return append(head, bytes.Repeat([]byte{'x'}, size)...)
}
