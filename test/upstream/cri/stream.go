//go:build linux

package cri

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os/exec"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// Exec gives the address at which a program can be run in a container.
func (s *Server) Exec(_ context.Context, r *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	if _, err := s.command(r.GetContainerId(), r.GetCmd()); err != nil {
		return nil, err
	}
	return s.streams.GetExec(r)
}

// PortForward gives the address at which ports of a Pod can be connected to.
func (s *Server) PortForward(
	_ context.Context, r *runtimeapi.PortForwardRequest,
) (*runtimeapi.PortForwardResponse, error) {
	return s.streams.GetPortForward(r)
}

// ExecSync runs a program in a container, at most for the timeout.
func (s *Server) ExecSync(ctx context.Context, r *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	if seconds := r.GetTimeout(); seconds > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(seconds)*time.Second)
		defer cancel()
	}
	cmd, err := s.command(r.GetContainerId(), r.GetCmd())
	if err != nil {
		return nil, err
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = runCommand(ctx, cmd)
	if ctx.Err() != nil {
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	exit, ended := errors.AsType[*exec.ExitError](err)
	if err != nil && !ended {
		return nil, err
	}
	response := &runtimeapi.ExecSyncResponse{Stdout: stdout.Bytes(), Stderr: stderr.Bytes()}
	if ended {
		response.ExitCode = int32(exit.ExitCode())
	}
	return response, nil
}

// command is a program that is run in a container, with the container's user and environment.
func (s *Server) command(id string, args []string) (*exec.Cmd, error) {
	c, err := find(s, s.containers, id)
	if err != nil {
		return nil, err
	}
	pid, p, ok := c.running()
	if !ok {
		return nil, status.Errorf(codes.FailedPrecondition, "%s does not run", id)
	}
	cmd := exec.Command("/usr/bin/nsenter", append([]string{
		"--target", strconv.Itoa(pid), "--mount", "--uts", "--ipc", "--net", "--pid", "--wdns=" + p.Dir,
		"--setgid", strconv.Itoa(p.Group), "--setuid", strconv.Itoa(p.User), "--",
	}, args...)...)
	cmd.Env = p.Env
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	return cmd, nil
}

// runCommand runs a program until it ends, or kills it with its children when ctx is done.
func runCommand(ctx context.Context, cmd *exec.Cmd) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	kill := context.AfterFunc(ctx, func() { _ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) })
	defer kill()
	const afterwards = time.Second // for those that keep its output open
	cmd.WaitDelay = afterwards
	return cmd.Wait()
}

// streams serves what Exec and PortForward promised.
type streams struct{ *Server }

// Exec runs a program with the client's streams. There are no terminals.
func (s streams) Exec(
	ctx context.Context, id string, args []string, in io.Reader, out, err io.WriteCloser, _ bool,
	_ <-chan remotecommand.TerminalSize,
) error {
	cmd, failed := s.command(id, args)
	if failed != nil {
		return failed
	}
	if in != nil {
		// The program may end before the client closes its stream.
		stdin, err := cmd.StdinPipe()
		if err != nil {
			return err
		}
		go func() {
			_, _ = io.Copy(stdin, in)
			stdin.Close()
		}()
	}
	if out != nil {
		cmd.Stdout = out
	}
	if err != nil {
		cmd.Stderr = err
	}
	failed = runCommand(ctx, cmd)
	if exit, ok := errors.AsType[*exec.ExitError](failed); ok {
		return utilexec.CodeExitError{Err: failed, Code: exit.ExitCode()}
	}
	return failed
}

// Attach is not supported.
func (streams) Attach(
	context.Context, string, io.Reader, io.WriteCloser, io.WriteCloser, bool, <-chan remotecommand.TerminalSize,
) error {
	return errors.ErrUnsupported
}

// PortForward connects a stream with a port of a Pod.
func (s streams) PortForward(_ context.Context, id string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	b, err := find(s.Server, s.sandboxes, id)
	if err != nil {
		return err
	}
	conn, err := b.dial("127.0.0.1:" + strconv.Itoa(int(port)))
	if err != nil {
		return err
	}
	defer conn.Close()
	go func() {
		_, _ = io.Copy(conn, stream)
		conn.Close()
	}()
	_, err = io.Copy(stream, conn)
	return err
}

// dial connects from the Pod's network.
func (b *sandbox) dial(address string) (conn net.Conn, err error) {
	dial := func() error {
		conn, err = net.Dial("tcp", address)
		return err
	}
	if b.onNode() {
		return conn, dial()
	}
	n := b.network
	if n == nil {
		return nil, status.Errorf(codes.FailedPrecondition, "%s is stopped", b.id)
	}
	return conn, n.Do(dial)
}
