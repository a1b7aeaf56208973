package traffic

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Server answers each request with its name.
type Server struct {
	Name string
	// Grace is how long it accepts connections after it was told to end. With 0, Serve returns at
	// once instead, with connections open.
	Grace time.Duration
}

// Serve serves until ctx is done, and for the grace time, and then until all connections are
// closed. It closes l.
func (s Server) Serve(ctx context.Context, l net.Listener) error {
	ended, end := context.WithCancel(context.Background())
	defer end()
	stop := context.AfterFunc(ctx, func() {
		time.Sleep(s.Grace)
		end()
		l.Close()
	})
	defer stop()
	var open sync.WaitGroup
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			break
		}
		if err != nil {
			return err
		}
		open.Go(func() {
			defer conn.Close()
			s.answer(ended, conn.(*net.TCPConn))
		})
	}
	if s.Grace > 0 {
		open.Wait()
	}
	return nil
}

// answer answers requests until the client closes the connection or, after one answer at least,
// the server has ended. An error is the client's to report.
func (s Server) answer(ended context.Context, conn *net.TCPConn) {
	requests := bufio.NewReader(conn)
	for first := true; first || ended.Err() == nil; first = false {
		if _, err := requests.ReadString('\n'); err != nil {
			return
		}
		if _, err := fmt.Fprintln(conn, s.Name); err != nil {
			return
		}
	}
	if conn.CloseWrite() == nil {
		_, _ = io.Copy(io.Discard, requests)
	}
}
