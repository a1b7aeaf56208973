package calls

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// The methods that the backend has.
const (
	Unary  = "/bench.Echo/Unary"  // the response is the message
	Stream = "/bench.Echo/Stream" // the response is the message again and again
)

// together is how many clients share a connection.
const together = 8

// rpc is a client of gRPC over HTTP/2 without TLS, for one call at a time.
type rpc struct {
	ctx       context.Context // of all calls
	transport *http.Transport
	config    *Config
	message   []byte        // with its prefix
	stream    *bufio.Reader // that is read; nil before the first message
	close     func() error  // of the stream
}

// rpcs returns the clients of a run.
func (c *Config) rpcs(ctx context.Context) (all []*rpc) {
	const size = 128
	message := make([]byte, 5+size) // not compressed
	binary.BigEndian.PutUint32(message[1:], size)
	var transport *http.Transport
	for i := range c.Connections {
		if i%together == 0 {
			transport = &http.Transport{Protocols: new(http.Protocols), DisableCompression: true}
			transport.Protocols.SetUnencryptedHTTP2(true)
		}
		all = append(all, &rpc{ctx: ctx, transport: transport, config: c, message: message})
	}
	return all
}

// call calls the method; of a stream, it reads the next message.
func (c *rpc) call() error {
	if c.stream != nil {
		return c.read(c.stream)
	}
	request, err := http.NewRequestWithContext(
		c.ctx, http.MethodPost, "http://"+c.config.Target.String()+c.config.Method, bytes.NewReader(c.message),
	)
	if err != nil {
		return err
	}
	request.Host = c.config.Request
	request.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}}
	response, err := c.transport.RoundTrip(request)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "application/grpc" {
		response.Body.Close()
		return fmt.Errorf("status %d, %v", response.StatusCode, response.Header)
	}
	in := bufio.NewReader(response.Body)
	if c.config.Method == Stream {
		c.stream, c.close = in, response.Body.Close
		return c.read(in)
	}
	defer response.Body.Close()
	if err := c.read(in); err != nil {
		return fmt.Errorf("%v: %w", response.Header, err)
	}
	if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("the response does not end after a message: %w", err)
	}
	if status := response.Trailer.Get("Grpc-Status"); status != "0" {
		return fmt.Errorf("gRPC status %q, want 0", status)
	}
	return nil
}

// read reads a message.
func (c *rpc) read(from *bufio.Reader) error {
	got := make([]byte, len(c.message))
	if _, err := io.ReadFull(from, got); err != nil {
		return err
	}
	if !bytes.Equal(got, c.message) {
		return errors.New("the response has another message")
	}
	return nil
}

// Close ends the stream, and the connection if it is idle.
func (c *rpc) Close() error {
	defer c.transport.CloseIdleConnections()
	if c.stream == nil {
		return nil
	}
	return c.close()
}
