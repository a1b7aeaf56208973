package controlplane

import (
	"io"
	"net"
)

// Forward connects the clients of l with the API server, until l is closed. It is for
// network namespaces from which the API server is not reached.
func (c *ControlPlane) Forward(l net.Listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		go carry(client, c.Address())
	}
}

// carry connects a client with a server until one of them ends the connection.
func carry(client net.Conn, address string) {
	defer client.Close()
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		_, _ = io.Copy(server, client) // either side may end it
		server.Close()
	}()
	_, _ = io.Copy(client, server)
}
