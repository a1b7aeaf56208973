//go:build !linux

package handover

import (
	"context"
	"errors"
	"net"
)

// A Socket is a listening socket and its name.
type Socket struct {
	Name     string
	Listener *net.TCPListener
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
func Take(context.Context, string) (map[string]*net.TCPListener, error) { return nil, nil }
