package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"portolan.dev/portolan/test/e2e/container"
)

// TestNodeRuns: with the command, the configuration, the user and the capabilities
// that the DaemonSet gives it, the agent puts its address and its table there, both
// of which go with it, and its probes are good.
func TestNodeRuns(t *testing.T) {
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skip("this host has no TUN devices: ", err)
	}
	image := buildImage(t)
	all := kustomized(t, "node")
	pod := as[appsv1.DaemonSet](t, all, "DaemonSet").Spec.Template.Spec
	c := onlyContainer(t, pod)
	config, run, resolv := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "resolv.conf")
	for file, text := range map[string]string{filepath.Join(config, "config.yaml"): configText(t, all), resolv: "nameserver 192.0.2.1\n"} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{image.Entrypoint}
	for _, arg := range c.Args {
		args = append(args, strings.ReplaceAll(arg, "$(PORTOLAN_SERVERS_SERVICE_HOST)", container.NodeAddress))
	}
	var granted []string
	for _, name := range c.SecurityContext.Capabilities.Add {
		granted = append(granted, string(name))
	}
	p := startContainer(t, container.Config{
		Root: image.Root,
		Mounts: []container.Mount{
			{Source: config, Target: agentConfigDir}, {Source: resolv, Target: "/etc/resolv.conf"},
			{Source: run, Target: "/run/portolan", Writable: true}, {Source: "/dev/net", Target: "/dev/net"},
		},
		Args:            args,
		User:            int(*c.SecurityContext.RunAsUser),
		Capabilities:    granted,
		NoNewPrivileges: !*c.SecurityContext.AllowPrivilegeEscalation,
	}, `"msg":"serving"`)
	for _, want := range []string{"the kernel removes the device with the addresses when the agent ends", "the kernel removes the nftables table when the agent ends", "169.254.20.10:53"} {
		if log := p.Logged(); !strings.Contains(log, want) {
			t.Fatalf("want %q in:\n%s", want, log)
		}
	}
	for _, probe := range []string{"live", "ready"} {
		awaitNothing(t, func() string {
			out, err := exec.CommandContext(t.Context(), filepath.Join(image.Root, image.Entrypoint), "probe", probe, "unix:"+run+"/probes").CombinedOutput()
			if err != nil {
				return "probe " + probe + ": " + string(out)
			}
			return ""
		})
	}
}
