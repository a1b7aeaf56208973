//go:build !unix

package cli

import "os"

// coreDNSReload are the signals on which CoreDNS reloads its Corefile.
var coreDNSReload []os.Signal
