package connection

import (
	"strings"
	"testing"
)

func TestAttemptArticle(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]string{
		"ClusterIP":  "is a ClusterIP address of Service shop/web",
		"ExternalIP": "is an ExternalIP address of Service shop/web",
	} {
		var b strings.Builder
		a := Attempt{Address: "192.0.2.1:80/tcp", Service: "shop/web", Kind: kind}
		a.write(&b)
		if !strings.Contains(b.String(), want) {
			t.Errorf("write() of %s = %q, want %q in it", kind, b.String(), want)
		}
	}
}
