//go:build linux

package world

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"portolan.dev/portolan/test/e2e/process"
	"portolan.dev/portolan/test/namespace"
)

// Class is the name of the GatewayClass that the gateway serves.
const Class = "portolan"

// The range of addresses of Gateways, each of which gets its own. A Gateway may ask for Usable; Unusable is not in the
// pool.
const (
	pool     = "10.1.0.0/24"
	Usable   = "10.1.0.200"
	Unusable = "192.0.2.1"
)

// configuration is that of the gateway. Ports are those of the listeners, and so privileged.
var configuration = `
gateway:
  portOffset: 0
  pool: [` + addresses() + `]
  experimental: %t
admin:
  listen: 127.0.0.1:9153
`

// poolSize is more than Gateways exist at once.
const poolSize = 60

// addresses returns those of the pool, as a list in YAML. The usable one comes last, so that no Gateway has it that
// does not ask for it.
func addresses() string {
	var all []string
	addr := netip.MustParsePrefix(pool).Addr()
	for range poolSize {
		addr = addr.Next()
		all = append(all, addr.String())
	}
	return strings.Join(append(all, Usable), ", ")
}

// StartGateway starts `portolan gateway` and creates its GatewayClass. It ends with the test, and if that failed, the
// end of its log is shown.
func (w *World) StartGateway(t *testing.T) {
	t.Helper()
	// Any address of the pool is one of this machine, without a device that has it.
	if err := namespace.IP("route add local " + pool + " dev lo"); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(w.dir, "gateway.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, configuration, w.channel == Experimental), 0o600); err != nil {
		t.Fatal(err)
	}
	gateway := process.Process{
		Path: w.programs.Portolan, Args: []string{"gateway", "--kubeconfig", w.Kubeconfig(), "--config", config},
		Log: filepath.Join(w.dir, "gateway.log"),
	}
	if err := gateway.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !gateway.Running() {
			t.Errorf("the gateway ended: %s", gateway.State())
		}
		const grace = 5 * time.Second
		gateway.Stop(grace)
		if t.Failed() {
			t.Logf("the gateway's log ends with\n%s", gateway.LastLogged())
		}
	})
	class := &gatewayv1.GatewayClass{
		ObjectMeta: metav1.ObjectMeta{Name: Class},
		Spec:       gatewayv1.GatewayClassSpec{ControllerName: "portolan.dev/gateway"},
	}
	if err := w.API.Create(t.Context(), class); err != nil {
		t.Fatal(err)
	}
}
