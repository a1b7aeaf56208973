package main

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCleanup: the command prints and removes what is there, of kube-proxy only if it is told,
// and is content if there is nothing.
func TestCleanup(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("a network of its own needs root")
	}
	file := t.TempDir() + "/config.yaml"
	write(t, file, "proxy: {table: vips}\nnode: {device: names}\n")
	const left = "for t in portolan-proxy portolan-proxy-next vips kube-proxy others; do nft add table ip $t; nft add table ip6 $t; done; " +
		"nft add table inet portolan; nft add table inet names; "
	for claim, c := range map[string]struct{ script, want string }{
		"nothing is there": {"portolan cleanup --kube-proxy && echo done", "done\n"},
		"Portolan's": {
			left + "portolan cleanup && portolan cleanup && nft list tables ip && nft list tables inet",
			"removed table ip portolan-proxy\nremoved table ip portolan-proxy-next\n" +
				"removed table ip6 portolan-proxy\nremoved table ip6 portolan-proxy-next\nremoved table inet portolan\n" +
				"table ip vips\ntable ip kube-proxy\ntable ip others\ntable inet names\n",
		},
		"those with the names of a file": {
			left + "portolan cleanup --config " + file, "removed table ip vips\nremoved table ip6 vips\nremoved table inet names\n",
		},
		"kube-proxy's, too": {
			left + "portolan cleanup >/dev/null; portolan cleanup --kube-proxy && nft list tables ip6",
			"removed table ip kube-proxy\nremoved table ip6 kube-proxy\ntable ip6 vips\ntable ip6 others\n",
		},
		"without rights": {
			"setpriv --bounding-set -net_admin --inh-caps -net_admin portolan cleanup; echo $?",
			"portolan: nftables table portolan-proxy: operation not permitted " +
				"(it needs the capability NET_ADMIN: run it as root, in the node's network)\n2\n",
		},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), "sh", "-c", c.script)
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
			out, err := cmd.CombinedOutput()
			if diff := cmp.Diff(c.want, string(out)); err != nil || diff != "" {
				t.Errorf("%s: %v (-want +got):\n%s", c.script, err, diff)
			}
		})
	}
}
