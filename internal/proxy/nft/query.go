package nft

import "net/netip"

// Contents are what the kernel has for an address of a Service.
type Contents struct {
	// Element is that of the map services, as nft lists it: the address and its verdict, such as
	// "10.96.0.10 . tcp . 80 : goto endpoints-3"; the verdict is none without the element.
	Element string
	// Endpoints are those that connections are given, Local those of clients outside with
	// externalTrafficPolicy Local; sorted.
	Endpoints, Local []netip.AddrPort
	// Differences say how this differs from the frontend, in a clause each.
	Differences []string
}
