package attack

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestGatewayRoutes adds 5,000 routes, and 50 that match the same requests, and removes them all, again and again. Others
// are served meanwhile, by the rules that are in force; of those that match the same the first one by name serves.
func TestGatewayRoutes(t *testing.T) {
	serveEndpoint(t)
	s := startGateway(t, "", "")
	const many, equal, patience = 5000, 50, 20 * time.Second
	var b strings.Builder
	for i := range many {
		b.WriteString(route(fmt.Sprintf("many-%d", i), fmt.Sprintf("many-%d.example", i)))
	}
	for i := range equal {
		text := route(fmt.Sprintf("equal-%02d", i), "equal.example")
		filter := fmt.Sprintf("{type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: X-Route, value: equal-%02d}]}}", i)
		b.WriteString(strings.Replace(text, "rules: [{", "rules: [{filters: ["+filter+"], ", 1))
	}
	file := filepath.Join(s.manifests, "many.yaml")
	client := visitor(false)
	// statusOf returns the status and the rule of a request.
	statusOf := func(host string) (status int, by string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+gatewayAddr+"/a", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		res, err := client.Do(req)
		if err != nil {
			t.Fatalf("%s: %v", host, err)
		}
		res.Body.Close()
		return res.StatusCode, res.Header.Get("X-Route")
	}
	await := func(host string, want int) {
		for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
			got, _ := statusOf(host)
			if got == want {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s: status %d, want %d", host, got, want)
			}
		}
	}
	last := fmt.Sprintf("many-%d.example", many-1)
	rounds := 0
	s.besiege(t, func(ctx context.Context) {
		for ; rounds < 2 || ctx.Err() == nil; rounds++ {
			if err := os.WriteFile(file+".new", []byte(b.String()), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(file+".new", file); err != nil {
				t.Fatal(err)
			}
			await(last, http.StatusOK)
			for range 10 {
				if status, by := statusOf("equal.example"); status != http.StatusOK || by != "equal-00" {
					t.Errorf("a request that %d routes match: %d by %q, want equal-00", equal, status, by)
				}
			}
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			await(last, http.StatusNotFound)
			await("equal.example", http.StatusNotFound)
		}
	})
	t.Logf("%d times", rounds)
}
