package source

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/kube/apitest"
)

// TestLoadWithoutReferring checks that Secrets, which are read because Ingresses and Gateways refer to
// them, are not waited for if these may not be read.
func TestLoadWithoutReferring(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	api.Misbehave(apitest.Fault{Refuse: func(_, path string) int {
		if strings.HasSuffix(path, "/ingresses") {
			return http.StatusForbidden
		}
		return 0
	}})
	settings := config.Default()
	settings.Kubernetes.Kubeconfig = api.Kubeconfig(t)
	s, err := New(Config{
		Settings: settings, Scope: Whole, Store: cluster.NewStore(), Log: slog.New(slog.DiscardHandler),
		Also:     []cluster.Kind{cluster.KindIngress, cluster.KindSecret},
		Patience: 10 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Unread) != 1 || l.Unread[0].Kind != cluster.KindIngress {
		t.Errorf("unread: %v, want Ingresses once", l.Unread)
	}
}
