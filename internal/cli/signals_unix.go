//go:build unix

package cli

import (
	"os"
	"syscall"
)

// coreDNSReload is the signal at which CoreDNS reads its Corefile again.
var coreDNSReload = []os.Signal{syscall.SIGUSR1}
