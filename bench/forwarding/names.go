package forwarding

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"

	"portolan.dev/portolan/bench/allnames"
	"portolan.dev/portolan/bench/load"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// newNames returns n names that were not used before.
func (b *bench) newNames(n int) (names []string) {
	for range n {
		names = append(names, fmt.Sprintf("name-%08x.example.org.", b.made))
		b.made++
	}
	return names
}

// queryFor returns a query for the address of a name without EDNS, as glibc and musl
// send it.
func queryFor(name string) ([]byte, error) {
	return dnswire.NewQuery(dnswire.QuerySpec{Name: name, Type: dnswire.TypeA, Flags: dnswire.FlagRD})
}

// writeQueries writes a file of queries for the load generator, in random order.
func (b *bench) writeQueries(names []string) (file string, err error) {
	wires := make([][]byte, len(names))
	for i, to := range rand.Perm(len(names)) {
		if wires[to], err = queryFor(names[i]); err != nil {
			return "", err
		}
	}
	file = b.file("queries")
	return file, load.WriteQueries(file, wires)
}

// client sends one query after another.
type client struct {
	net.Conn
	buffer [4096]byte
}

func dial(server netip.AddrPort) (*client, error) {
	conn, err := net.Dial("udp", server.String())
	if err != nil {
		return nil, err
	}
	return &client{Conn: conn}, nil
}

// ask queries the address of a name. It returns an error unless it gets the address.
func (c *client) ask(name string) error {
	const patience = 2 * time.Second
	query, err := queryFor(name)
	if err != nil {
		return err
	}
	const ttl = 0 // not checked
	wire, _ := allnames.AppendAnswer(nil, query, ttl)
	want, err := dnswire.ParseMessage(wire)
	if err != nil {
		return err
	}
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := c.Write(query); err != nil {
		return err
	}
	for {
		n, err := c.Read(c.buffer[:])
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		const idLen = 2
		if n < idLen || [idLen]byte(c.buffer[:idLen]) != [idLen]byte(query) {
			continue // the answer to an earlier query
		}
		got, err := dnswire.ParseMessage(c.buffer[:n])
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if len(got.Answer) != 1 || got.Answer[0].Data != want.Answer[0].Data {
			return fmt.Errorf("%s: the answer is %s %v, want %v", name, got.Status, got.Answer, want.Answer)
		}
		return nil
	}
}

// fill queries all names until it has their addresses.
func fill(ctx context.Context, server netip.AddrPort, names []string) error {
	const clients = 32
	group, ctx := errgroup.WithContext(ctx)
	for i := range clients {
		group.Go(func() error {
			c, err := dial(server)
			if err != nil {
				return err
			}
			defer c.Close()
			for j := i; j < len(names) && ctx.Err() == nil; j += clients {
				if err := c.insist(names[j]); err != nil {
					return err
				}
			}
			return ctx.Err()
		})
	}
	return group.Wait()
}

// insist queries a name up to a few times.
func (c *client) insist(name string) error {
	const attempts = 3
	var errs []error
	for range attempts {
		err := c.ask(name)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
