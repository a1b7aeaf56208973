package policy

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/policy/droplog"
	"portolan.dev/portolan/test/policy/policytest"
)

// TestLog verifies that packets that a policy denies, or would deny if it were not in audit mode, are printed
// by `portolan policy log` and counted, and that the latter pass.
func TestLog(t *testing.T) {
	s := withThree(t)
	if s == nil {
		return
	}
	audited := onlyFrom("cache", "web")
	audited.Annotations = map[string]string{cluster.AnnotationAudit: "true"}
	audited.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	s.API.Put(audited)
	cache := s.launch(t, "cache", app("cache"), "10.244.1.6")
	serve(t, cache)
	if err := dial(s.web, netip.AddrPortFrom(cache.Addr(), port)); err != nil {
		t.Errorf("a connection that an audited policy allows: %v", err)
	}
	until(t, "the policy in audit mode counts", func() bool {
		if err := dial(s.other, netip.AddrPortFrom(cache.Addr(), port)); err != nil {
			t.Fatalf("a connection that an audited policy would deny: %v", err)
		}
		return packets(t, "audit") > 0
	})
	if err := dial(s.other, s.at()); !timedOut(err) {
		t.Errorf("a connection that a policy denies: %v, want a timeout", err)
	}
	want := map[string]droplog.Record{
		"deny":  {Event: "deny", SourcePod: "shop/other", DestinationPod: "shop/db", Reason: "only-db"},
		"audit": {Event: "audit", SourcePod: "shop/other", DestinationPod: "shop/cache", Reason: "only-cache"},
	}
	for event, r := range want {
		var out string
		until(t, "a line of "+event, func() bool {
			out = s.printed(t)
			return strings.Contains(out, fmt.Sprintf(`"event":%q`, event))
		})
		for line := range strings.Lines(out) {
			var got droplog.Record
			must(t, json.Unmarshal([]byte(line), &got))
			if got.Event != event {
				continue
			}
			if got.SourcePod != r.SourcePod || got.DestinationPod != r.DestinationPod || got.Direction != "ingress" ||
				got.Protocol != "TCP" || got.DestinationPort != port || !strings.Contains(got.Reason, r.Reason) {
				t.Errorf("a line of the log is\n%swant %+v", line, r)
			}
		}
		if strings.Contains(out, "shop/web") {
			t.Errorf("the log has packets that were allowed:\n%s", out)
		}
		if n := packets(t, event); n == 0 {
			t.Errorf("no packet of ingress with the event %s is counted", event)
		}
	}
	before := packets(t, "audit")
	if err := dial(s.other, netip.AddrPortFrom(cache.Addr(), port)); err != nil {
		t.Error(err)
	}
	if n := packets(t, "audit") - before; n != 1 {
		t.Errorf("%d packets of one connection are counted, want 1", n)
	}
}

// printed returns what `portolan policy log` prints of the agent's log.
func (w *world) printed(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), w.Program, "policy", "log", "-o", "json", "--admin", policytest.Admin).Output()
	must(t, err)
	return string(out)
}

// packets returns the agent's count of packets of ingress with an event.
func packets(t *testing.T, event string) int {
	t.Helper()
	return metric(t, fmt.Sprintf(`portolan_policy_packets_total{direction="ingress",event=%q}`, event))
}

// metric returns one of the agent's metrics; 0 if there is none.
func metric(t *testing.T, name string) (n int) {
	t.Helper()
	response, err := http.Get("http://" + policytest.Admin + "/metrics") // the whole process is in the node's network
	must(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	must(t, err)
	if _, rest, ok := strings.Cut(string(body), name+" "); ok {
		_, err = fmt.Sscan(rest, &n)
		must(t, err)
	}
	return n
}
