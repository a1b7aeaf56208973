// Command resolve looks a name up with Go's resolver and prints the outcome as package
// stubresolver names it; resolve.c does the same with the C library's resolver.
//
//	resolve KIND NAME
//
// KIND is 0 for all addresses, A, AAAA or SRV.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "resolve KIND NAME")
		os.Exit(2)
	}
	fmt.Println(outcome(resolve(os.Args[1], os.Args[2])))
}

// resolve is nil if there are records.
func resolve(kind, name string) error {
	ctx := context.Background()
	switch kind {
	case "SRV":
		_, _, err := net.DefaultResolver.LookupSRV(ctx, "", "", name)
		return err
	case "A":
		return addresses(ctx, "ip4", name)
	case "AAAA":
		return addresses(ctx, "ip6", name)
	}
	return addresses(ctx, "ip", name)
}

func addresses(ctx context.Context, network, name string) error {
	_, err := net.DefaultResolver.LookupNetIP(ctx, network, name)
	return err
}

func outcome(err error) string {
	if err == nil {
		return "found"
	}
	var dns *net.DNSError
	switch {
	case !errors.As(err, &dns):
		return "no such name" // an address of the other family
	case dns.IsNotFound:
		return "no such name"
	case dns.Temporary():
		return "try again"
	}
	return "failed"
}
