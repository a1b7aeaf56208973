package deploy

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"portolan.dev/portolan/test/e2e/container"
	"portolan.dev/portolan/test/e2e/process"
)

// buildImage builds the image once for a test, and skips it where containers
// can't be run.
func buildImage(t *testing.T) *container.Image {
	t.Helper()
	if err := container.Check(); err != nil {
		t.Skip(err)
	}
	image, err := container.BuildImage(t.Context(), "../..")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := image.Remove(); err != nil {
			t.Error(err)
		}
	})
	return image
}

// TestBindsPort53: a user that isn't root binds port 53 with what the Deployment
// grants, since the image's file has the capability, too. Where the capability
// is not granted the server starts as well, and says what is wrong. That is why
// the file has it permitted, and not effective: execve(2) of such a file fails.
func TestBindsPort53(t *testing.T) {
	image := buildImage(t)
	program := filepath.Join(image.Root, image.Entrypoint)
	security := onlyContainer(t, as[appsv1.Deployment](t, kustomized(t, "base"), "Deployment").Spec.Template.Spec).SecurityContext
	const (
		serves      = "msg=serving"
		saysWhy     = "permission denied; ports below 1024 need root or the capability CAP_NET_BIND_SERVICE"
		cannotStart = "exec /portolan: operation not permitted"
	)
	var granted []string
	for _, name := range security.Capabilities.Add {
		granted = append(granted, string(name))
	}
	tests := map[string]struct {
		file            string // what setcap(8) gives it
		capabilities    []string
		noNewPrivileges bool
		want            string
	}{
		"as shipped":                     {image.Capabilities, granted, !*security.AllowPrivilegeEscalation, serves},
		"with privilege escalation":      {image.Capabilities, granted, false, serves},
		"not granted":                    {image.Capabilities, nil, true, saysWhy},
		"granted, and not the file's":    {"=", granted, true, saysWhy},
		"granted, effective in the file": {"cap_net_bind_service=+ep", granted, true, serves},
		"not granted, effective":         {"cap_net_bind_service=+ep", nil, true, cannotStart},
	}
	for claim, tt := range tests {
		t.Run(claim, func(t *testing.T) {
			if out, err := exec.CommandContext(t.Context(), "setcap", tt.file, program).CombinedOutput(); err != nil {
				t.Fatalf("setcap: %v %s", err, out)
			}
			examples, err := filepath.Abs("../../examples/shop")
			if err != nil {
				t.Fatal(err)
			}
			p := startContainer(t, container.Config{
				Root:            image.Root,
				Mounts:          []container.Mount{{Source: examples, Target: "/shop"}},
				Args:            []string{image.Entrypoint, "serve", "--manifests", "/shop", "--listen", "0.0.0.0:53", "--admin", ""},
				User:            image.User,
				Capabilities:    tt.capabilities,
				NoNewPrivileges: tt.noNewPrivileges,
			}, serves)
			if log := p.Logged(); !strings.Contains(log, tt.want) {
				t.Errorf("want %q in:\n%s", tt.want, log)
			}
		})
	}
}

// startContainer starts a container in a network of its own, and returns when its log has serves
// or it has ended.
func startContainer(t *testing.T, c container.Config, serves string) *process.Process {
	t.Helper()
	network, err := container.NewNetwork()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { network.Close() })
	c.Network = network
	p, err := c.Process()
	if err != nil {
		t.Fatal(err)
	}
	p.Log = filepath.Join(t.TempDir(), "log")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Stop(10 * time.Second) })
	awaitNothing(t, func() string {
		if log := p.Logged(); strings.Contains(log, serves) || !p.Running() {
			return ""
		}
		return "neither serving nor ended:\n" + p.LastLogged()
	})
	return p
}
