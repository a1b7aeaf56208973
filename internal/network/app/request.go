package app

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"strings"

	"portolan.dev/portolan/internal/cni/attach"
	"portolan.dev/portolan/internal/network/ipam"
	"portolan.dev/portolan/internal/network/link"
	"portolan.dev/portolan/internal/network/nft"
)

// podOf returns the link of a Pod.
func podOf(r attach.Request, record ipam.Record) link.Pod {
	pod := link.Pod{
		NetNS: r.NetNS, Interface: r.Interface, Host: record.Device, Addresses: record.Addresses,
		Alias: "portolan " + record.Pod(),
	}
	if b := r.Bandwidth; b != nil {
		pod.Ingress = link.Bandwidth{Rate: b.IngressRate, Burst: b.IngressBurst}
		pod.Egress = link.Bandwidth{Rate: b.EgressRate, Burst: b.EgressBurst}
	}
	return pod
}

// resultOf returns the result of ADD for a link.
func resultOf(pod *link.Pod, cfg link.Config) *attach.Result {
	result := &attach.Result{
		Host: attach.Interface{Name: pod.Host, MAC: link.HostMAC().String(), MTU: cfg.MTU},
		Pod:  attach.Interface{Name: pod.Interface, MAC: link.PodMAC(pod.Addresses).String(), MTU: cfg.MTU},
	}
	for _, addr := range pod.Addresses {
		gateway := link.Gateway4
		if addr.Is6() {
			gateway = link.Gateway6
		}
		result.Addrs = append(result.Addrs, attach.Address{
			Address: netip.PrefixFrom(addr, addr.BitLen()).String(), Gateway: gateway.String(),
		})
	}
	return result
}

// codedError gives errors of package link the codes of the CNI specification.
func codedError(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &attach.RefusedError{Code: attach.CodeContainer, Text: err.Error()}
	}
	return err
}

// hostPort is a port of the node, and the port of the Pod that it leads to.
type hostPort struct {
	nft.Port // without To
	to       uint16
}

// leadTo returns the ports of the table that lead to a Pod with these addresses. A port of one address of the node is
// of its family.
func leadTo(all []hostPort, addrs []netip.Addr) (ports []nft.Port) {
	for _, p := range all {
		for _, addr := range addrs {
			if p.HostIP.IsValid() && p.HostIP.Is4() != addr.Is4() {
				continue
			}
			port := p.Port
			port.To = netip.AddrPortFrom(addr, p.to)
			ports = append(ports, port)
		}
	}
	return ports
}

// portsOf returns the ports of the node that a request asks for. Those without a port of the node are left out, as
// runtimes pass all ports of a Pod.
func portsOf(all []attach.Port) (ports []hostPort, err error) {
	for _, p := range all {
		if p.HostPort == 0 {
			continue
		}
		port := hostPort{Port: nft.Port{HostPort: p.HostPort}, to: p.ContainerPort}
		if p.ContainerPort == 0 {
			return nil, fmt.Errorf("portMappings: host port %d has no container port", p.HostPort)
		}
		switch strings.ToLower(p.Protocol) {
		case "", "tcp":
			port.Protocol = nft.TCP
		case "udp":
			port.Protocol = nft.UDP
		case "sctp":
			port.Protocol = nft.SCTP
		default:
			return nil, fmt.Errorf("portMappings: protocol %q of host port %d is not tcp, udp or sctp", p.Protocol, p.HostPort)
		}
		if p.HostIP != "" {
			if port.HostIP, err = netip.ParseAddr(p.HostIP); err != nil {
				return nil, fmt.Errorf("portMappings: host IP %q of host port %d is not an address", p.HostIP, p.HostPort)
			}
			if port.HostIP = port.HostIP.Unmap(); port.HostIP.IsUnspecified() {
				port.HostIP = netip.Addr{} // as the API has it: all addresses
			}
		}
		ports = append(ports, port)
	}
	return ports, nil
}
