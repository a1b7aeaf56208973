package main

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"portolan.dev/portolan/internal/kube/apitest"
)

// apiShop returns an API server with the shop, and its endpoint.
func apiShop(t *testing.T) (*apitest.Server, *pod) {
	t.Helper()
	api, p := gatewayAPI(t), startPod(t)
	api.Delete(&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1"}})
	putPod(api, "web", p, true)
	api.Put(routeOf("web", "shop.example", "/", "web"))
	return api, p
}

// TestGatewayAPIAway serves what it knows while the API answers nothing, refuses everything, or hangs up, and follows
// what has changed when it is back, also if the API has forgotten the changes in between.
func TestGatewayAPIAway(t *testing.T) {
	t.Parallel()
	api, _ := apiShop(t)
	g := startAPIGateway(t, api, "publish: {addresses: [192.0.2.7]}")
	g.want(8080, "shop.example", "/a", http.StatusOK, "0")
	for i, fault := range []apitest.Fault{{HangUp: true}, {Status: http.StatusServiceUnavailable}, {Silent: true}} {
		api.Misbehave(fault)
		api.Cut()
		host := fmt.Sprintf("new-%d.example", i)
		api.Put(routeOf(fmt.Sprintf("new-%d", i), host, "/", "web"))
		api.Forget()
		for range 20 {
			if status, body := g.fetch(8080, "shop.example", "/a"); status != http.StatusOK {
				t.Errorf("with the API away (%+v): %d %q", fault, status, body)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if status, body := g.fetch(8080, host, "/"); status != http.StatusNotFound {
			t.Errorf("a route that it cannot know yet (%+v): %d %q", fault, status, body)
		}
		api.Misbehave(apitest.Fault{})
		api.Cut() // of silent ones
		g.want(8080, host, "/", http.StatusOK, "0")
	}
}

// leaderOf returns the gateway that writes statuses; nil if none does.
func leaderOf(all ...*gateway) (leader *gateway) {
	for _, g := range all {
		if _, text := g.admin("/metrics"); strings.Contains(text, "\nportolan_gateway_leader 1\n") {
			leader = g
		}
	}
	return leader
}

// accepted returns the controllers that say of a route that it is accepted, in order.
func accepted(api *apitest.Server, name string) (controllers []string) {
	var route gatewayv1.HTTPRoute
	if !api.Get("shop", name, &route) {
		return nil
	}
	for _, parent := range route.Status.Parents {
		for _, c := range parent.Conditions {
			if c.Type == "Accepted" && c.Status == metav1.ConditionTrue {
				controllers = append(controllers, string(parent.ControllerName))
			}
		}
	}
	slices.Sort(controllers)
	return controllers
}

// TestGatewayLeaderLost kills the one of two gateways that writes the statuses. The other one serves on, and writes
// what is new then. Entries of another controller stay.
func TestGatewayLeaderLost(t *testing.T) {
	t.Parallel()
	api, _ := apiShop(t)
	section := "publish: {addresses: [192.0.2.7]}"
	both := []*gateway{startAPIGateway(t, api, section), startAPIGateway(t, api, section)}
	var leader *gateway
	both[0].poll(patience, func() error {
		if leader = leaderOf(both...); leader == nil {
			return errors.New("no gateway leads")
		}
		if got := accepted(api, "web"); !slices.Equal(got, []string{"portolan.dev/gateway"}) {
			return fmt.Errorf("the route is accepted by %q", got)
		}
		return nil
	})
	other := both[0]
	if leader == other {
		other = both[1]
	}
	const foreign = "other.example/gateway"
	var route gatewayv1.HTTPRoute
	api.Get("shop", "web", &route)
	own := route.Status.Parents[0]
	entry := *own.DeepCopy()
	entry.ControllerName = foreign
	route.Status.Parents = append(route.Status.Parents, entry)
	api.Put(&route)

	if err := leader.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-leader.ended
	killed := time.Now()
	api.Put(routeOf("later", "later.example", "/", "web"))
	other.want(8080, "later.example", "/", http.StatusOK, "0")
	const takeover = 18*time.Second + patience // docs/gateway.md
	other.poll(takeover, func() error {
		if status, body := other.fetch(8080, "shop.example", "/a"); status != http.StatusOK {
			t.Errorf("while no gateway leads: %d %q", status, body)
		}
		if got := accepted(api, "later"); !slices.Equal(got, []string{"portolan.dev/gateway"}) {
			return fmt.Errorf("%s after the leader was killed a new route is accepted by %q", time.Since(killed), got)
		}
		return nil
	})
	t.Logf("the other gateway wrote statuses %.1f s after the leader was killed", time.Since(killed).Seconds())
	if got := accepted(api, "web"); !slices.Equal(got, []string{foreign, "portolan.dev/gateway"}) {
		t.Errorf("the route with an entry of another controller is accepted by %q, want both", got)
	}
}
