//go:build !unix

package cli

import "os"

// coreDNSReload is the signal at which CoreDNS reads its Corefile again.
var coreDNSReload []os.Signal
