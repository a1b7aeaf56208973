//go:build unix

package cli

import (
	"os"
	"syscall"
)

// coreDNSReload are the signals on which CoreDNS reloads its Corefile.
var coreDNSReload = []os.Signal{syscall.SIGUSR1}
