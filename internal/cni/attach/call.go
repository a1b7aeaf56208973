package attach

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// Call sends a request to the agent at a socket and waits for the reply until a time. Its errors wrap
// ErrUnreachable, or are *RefusedErrors.
func Call(until time.Time, socket string, r Request) error {
	_, err := CallForResult(until, socket, r)
	return err
}

// CallForResult is Call, and returns the result of Add.
func CallForResult(until time.Time, socket string, r Request) (*Result, error) {
	reply, err := exchange(until, socket, r)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w at %s: %w", ErrUnreachable, socket, reason(err))
	case reply.Error != "":
		return nil, &RefusedError{Code: reply.Code, Text: reply.Error}
	}
	return reply.Result, nil
}

func exchange(until time.Time, socket string, r Request) (reply Reply, err error) {
	conn, err := dial(socket)
	if err != nil {
		return reply, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(until); err != nil {
		return reply, err
	}
	r.Version = version
	sent := json.NewEncoder(conn).Encode(r)
	err = json.NewDecoder(io.LimitReader(conn, maxMessage)).Decode(&reply)
	if err != nil && sent != nil { // else the agent refused a request before it had all of it
		err = sent
	}
	return reply, err
}

// dial connects to a Unix socket, as net.Dial does. A listener with too many connections that it has not
// accepted is the error EAGAIN.
func dial(socket string) (*os.File, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	syscall.CloseOnExec(fd)
	err = syscall.SetNonblock(fd, true) // so that the file has deadlines
	if err == nil {
		err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: socket})
	}
	if err != nil {
		syscall.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), socket), nil
}

// reason returns an error without the name of the socket.
func reason(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		err = path.Err
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errors.New("no reply in time")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("it ended before it replied")
	}
	return err
}
