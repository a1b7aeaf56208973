// Command echo returns every UDP message as a response. It measures the lowest possible
// cost of a DNS server on this machine. It uses one socket, one thread and batched
// system calls.
package main

import (
	"fmt"
	"net/netip"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"portolan.dev/portolan/bench/mmsg"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: echo ADDR:PORT")
		os.Exit(2)
	}
	fmt.Fprintln(os.Stderr, "echo:", echo(os.Args[1]))
	os.Exit(1)
}

// echo answers messages. It returns only on an error.
func echo(listen string) error {
	runtime.LockOSThread()
	address, err := netip.ParseAddrPort(listen)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: int(address.Port()), Addr: address.Addr().As4()}); err != nil {
		return err
	}
	const (
		batch    = 64
		longest  = 1500
		flags    = 2 // the offset of the flags
		response = 0x80
	)
	var buffers [batch][longest]byte
	messages := mmsg.New(batch)
	messages.AddPeers()
	for {
		for i := range buffers {
			messages.SetBuffer(i, buffers[i][:])
		}
		n, err := messages.Receive(fd, unix.MSG_WAITFORONE)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		for i := range n {
			buffers[i][flags] |= response
			messages.SetBuffer(i, buffers[i][:max(1, messages.Len(i))])
		}
		if _, err := messages.Send(fd, n, 0); err != nil && err != unix.EINTR {
			return fmt.Errorf("send: %w", err)
		}
	}
}
