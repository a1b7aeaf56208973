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

// newNames are n names that nobody asked for before.
func (b *bench) newNames(n int) (names []string) {
	for range n {
		names = append(names, fmt.Sprintf("name-%08x.example.org.", b.made))
		b.made++
	}
	return names
}

// queryFor asks for the address of a name without EDNS, as glibc and musl do.
func queryFor(name string) ([]byte, error) {
	return dnswire.NewQuery(dnswire.QuerySpec{Name: name, Type: dnswire.TypeA, Flags: dnswire.FlagRD})
}

// writeQueries writes a file for the load generator, which asks for the names in
// an order that has nothing to do with the one in which they were made.
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

// client asks one name after the other.
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

// ask asks for a name, and fails unless its address comes.
func (c *client) ask(name string) error {
	const patience = 2 * time.Second
	query, err := queryFor(name)
	if err != nil {
		return err
	}
	const ttl = 0 // does not matter
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
			continue // the answer to a query before
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

// fill asks for all names until their addresses came.
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

// insist asks some times.
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
