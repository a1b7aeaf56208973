package app

import (
	"context"

	"portolan.dev/portolan/internal/support/handover"
)

// inherit takes the listeners of the process that this one replaces, and reports whether there are any. That
// process goes on to accept their connections until it is told to stop; this one begins when it has a table.
func (g *Gateway) inherit(ctx context.Context) bool {
	if g.settings.Handover == "" {
		return false
	}
	all, err := handover.Take(ctx, g.settings.Handover)
	if err != nil {
		g.cfg.Log.Warn("the ports of the process before cannot be taken over", "err", err)
	}
	if all.Len() == 0 {
		return false
	}
	g.cfg.Log.Info("ports of the process before are taken over", "ports", all.Len())
	g.sockets.mu.Lock()
	defer g.sockets.mu.Unlock()
	g.sockets.inherited = all
	return true
}

// offer passes the listeners to processes that replace this one, until ctx is done. It begins when requests
// are served: until then, the process before has the better ones.
func (g *Gateway) offer(ctx context.Context) {
	if g.settings.Handover == "" {
		return
	}
	select {
	case <-ctx.Done():
		return
	case <-g.worker.serves:
	}
	o, err := handover.NewOffer(g.settings.Handover, g.sockets.offered)
	if err != nil {
		g.cfg.Log.Warn("a process that replaces this one cannot take over its ports", "err", err)
		return
	}
	o.Run(ctx)
}

// offered returns the listeners by their addresses.
func (s *sockets) offered() (all []handover.Socket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, sock := range s.open {
		for addr, b := range sock.listeners {
			address, err := s.address(at, addr)
			switch {
			case err != nil:
			case b.tcp != nil:
				all = append(all, handover.Socket{Name: address, Listener: b.tcp})
			case b.udp != nil:
				all = append(all, handover.Socket{Name: packetName(address), Packets: b.udp})
			}
		}
	}
	return all
}

// dropInherited closes inherited listeners that no socket of the table has. The caller holds the lock.
func (s *sockets) dropInherited() {
	s.inherited.Close()
	s.inherited = handover.Taken{}
}

// packetName is the name of a socket of UDP for the next process.
func packetName(address string) string { return "udp " + address }

// forgetInherited is dropInherited for callers without the lock.
func (s *sockets) forgetInherited() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropInherited()
}
