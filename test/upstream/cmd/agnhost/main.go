//go:build linux

// Command agnhost has those commands of Kubernetes' test program of that name that the Pods of package
// policyapi run, with associations of SCTP by package sctp: the kernel may not have it.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/kubernetes/test/images/agnhost/connect"
	"k8s.io/kubernetes/test/images/agnhost/netexec"
	"k8s.io/kubernetes/test/images/agnhost/pause"
	servehostname "k8s.io/kubernetes/test/images/agnhost/serve-hostname"

	"portolan.dev/portolan/test/upstream/sctp"
)

func main() {
	root := &cobra.Command{Use: "agnhost"}
	others := connect.CmdConnect.Run
	connect.CmdConnect.Run = func(cmd *cobra.Command, args []string) {
		if protocol, _ := cmd.Flags().GetString("protocol"); protocol != "sctp" { // it is a string
			others(cmd, args)
			return
		}
		timeout, _ := cmd.Flags().GetDuration("timeout") // it is a duration
		if err := connectSCTP(args[0], timeout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	porter := &cobra.Command{
		Use:   "porter",
		Short: "Accepts SCTP at the ports of variables SERVE_SCTP_PORT_NNNN",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return serveSCTP(os.Environ()) },
	}
	root.AddCommand(connect.CmdConnect, netexec.CmdNetexec, pause.CmdPause, servehostname.CmdServeHostname, porter)
	if err := root.Execute(); err != nil {
		os.Exit(1)
	}
}

// connectSCTP connects to an address and port. Its errors begin as those of connect for other protocols.
func connectSCTP(server string, timeout time.Duration) error {
	addr, err := netip.ParseAddrPort(server)
	if err != nil {
		return fmt.Errorf("UNKNOWN: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	err = sctp.Connect(ctx, addr)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return errors.New("TIMEOUT")
	case err != nil:
		return fmt.Errorf("OTHER: %w", err)
	}
	return nil
}

// serveSCTP serves at the ports of an environment until one of the servers fails.
func serveSCTP(environment []string) error {
	failed := make(chan error)
	served := 0
	for _, variable := range environment {
		text, ok := strings.CutPrefix(variable, "SERVE_SCTP_PORT_")
		if !ok {
			continue
		}
		text, _, _ = strings.Cut(text, "=")
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return err
		}
		server, err := sctp.Listen(uint16(port))
		if err != nil {
			return err
		}
		served++
		go func() { failed <- server.Serve() }()
	}
	if served == 0 {
		return errors.New("no variable SERVE_SCTP_PORT_NNNN")
	}
	return <-failed
}
