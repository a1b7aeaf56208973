//go:build !linux

package handover

import (
	"context"
	"errors"
	"net"
)

// A Socket is a listening socket, or one that receives datagrams, and its name.
type Socket struct {
	Name     string
	Listener *net.TCPListener // nil for one of UDP
	Packets  *net.UDPConn     // nil for one of TCP
}

// Taken are the sockets of another process, by name. Names of both kinds are distinct.
type Taken struct {
	Listeners map[string]*net.TCPListener
	Packets   map[string]*net.UDPConn
}

// Len returns how many there are.
func (t *Taken) Len() int { return len(t.Listeners) + len(t.Packets) }

// Close closes them.
func (t *Taken) Close() {
	for _, l := range t.Listeners {
		l.Close()
	}
	for _, c := range t.Packets {
		c.Close()
	}
}

// Offer is where the next process gets the sockets.
type Offer struct{}

// NewOffer fails: sockets are passed on under Linux only.
func NewOffer(string, func() []Socket) (*Offer, error) { return nil, errors.ErrUnsupported }

// Run does nothing.
func (o *Offer) Run(context.Context) {}

// Close does nothing.
func (o *Offer) Close() {}

// Take finds no sockets.
func Take(context.Context, string) (Taken, error) { return Taken{}, nil }
