package connection

import (
	"fmt"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/pod/explain"
	"portolan.dev/portolan/internal/proxy/plan"
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

// TestChosenIsListed: the endpoint that a client gets is listed, also where the list is cut short.
func TestChosenIsListed(t *testing.T) {
	t.Parallel()
	a := Attempt{Address: "192.0.2.1:80/tcp", Service: "shop/web", Outcome: Connected, Choice: "client-hash"}
	for i := range mostEndpoints + 3 {
		a.Endpoints = append(a.Endpoints, Use{Address: fmt.Sprintf("10.0.0.%d:80", i), Used: true, Weight: plan.DefaultWeight})
	}
	a.Chosen = a.Endpoints[mostEndpoints+1].Address
	var b strings.Builder
	e := Explanation{Outcome: Connected, Attempts: []Attempt{a}}
	if err := e.WriteText(&b, explain.Style{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"  10.0.0.0:80: used for other clients\n", "  " + a.Chosen + ": used for this client (client-hash)\n",
		"  and 2 more endpoints\n", "\nconnected to " + a.Chosen + "\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("WriteText() lacks %q:\n%s", want, &b)
		}
	}
}
