// Command nameserver answers each query at port 53, over UDP, with the query itself as a response that has no
// records (RFC 1035, section 4.1.1). It takes the place of CoreDNS in the Pods of the conformance suite, which asks
// whether there is any response.
package main

import (
	"fmt"
	"net"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, serve())
	os.Exit(1)
}

// serve answers until it fails.
func serve() error {
	c, err := net.ListenPacket("udp", ":53")
	if err != nil {
		return err
	}
	const response = 0x80 // the bit QR
	for message := make([]byte, 64<<10); ; {
		n, from, err := c.ReadFrom(message)
		if err != nil {
			return err
		}
		const flags, header = 2, 12
		if n < header {
			continue
		}
		message[flags] |= response
		if _, err := c.WriteTo(message[:n], from); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}
