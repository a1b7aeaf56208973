package prometheus

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"portolan.dev/portolan/test/await"
)

// causes are the alerts and the instances that cause them.
var causes = map[string]string{
	"PortolanNotLoaded": "loading", "PortolanServfail": "loading", "PortolanStale": "stale", "PortolanSlow": "slow",
	"PortolanUpstreamsDown": "slow", "PortolanConfigRefused": "refused", "PortolanLate": "late",
	"PortolanServersDiffer": "late", "PortolanSnapshotFails": "late", "PortolanGatewayLate": "late-gateway",
	"PortolanGatewayNoLeader": "late-gateway", "PortolanAgentNetwork": "without-ipv6", "PortolanAgentMeddled": "flushed",
	"PortolanPolicyMeddled": "meddled", "PortolanProxyNotInKernel": "told", "PortolanPolicyNotInKernel": "told",
	"PortolanNetworkNotInKernel": "taken", "PortolanPolicyPodsRefused": "strange", "PortolanNetworkAddressesShort": "full",
	"PortolanNetworkPodsRefused": "full", "PortolanNetworkPluginNotInstalled": "uninstalled",
	"PortolanPolicyPluginNotInstalled": "unchained", "PortolanNetworkNodesWithoutKey": "keyless",
	"PortolanProxyServicesLeftOut": "crowded", "PortolanReplicaNotLoaded": "replica-loading",
	"PortolanReplicaStale": "replica-stale", "PortolanReplicaNotSaved": "replica-stale",
	"PortolanGatewayPortNotBound": "gateway", "PortolanGatewayErrors": "gateway", "PortolanGatewayOwnErrors": "gateway",
	"PortolanGatewayFull": "gateway", "PortolanGatewayCertificate": "gateway", "PortolanGatewayStatusFails": "status",
	"PortolanPodRangesMissing": "ranges", "PortolanPoolExhausted": "pools", "PortolanLoadBalancersWithoutAddress": "pools",
	"PortolanWebhookCertificate": "webhook-old", "PortolanWebhookFails": "webhook", "PortolanWebhookPassedOver": "told",
	"PortolanInvalidObjects": "late", "PortolanServerFull": "slow",
	"PortolanAnnounceRouterDown": "unheard", "PortolanAnnounceUnclaimed": "unheard",
}

// gone are the alerts of processes that are gone, which are caused last.
var gone = []string{"PortolanDown", "PortolanAgentDown", "PortolanGatewayDown", "PortolanWebhookDown"}

// TestAlerts causes each alert, and runs what its runbook says to confirm it.
func TestAlerts(t *testing.T) {
	rules := alertsIn(readFile(t, rulesFile))
	if all := slices.Sorted(maps.Keys(causes)); !slices.Equal(slices.Sorted(slices.Values(append(all, gone...))), rules) {
		t.Fatalf("causes of the alerts %q, want of %q", append(all, gone...), rules)
	}
	for name, instance := range causes {
		if (untried[name] != "") != (instance == "told") {
			t.Errorf("%s: the cause is %q, and untried says %q", name, instance, untried[name])
		}
	}
	x := &troubles{t: t, m: startMonitor(t), hosts: make(map[string]*host)}
	x.servers()
	x.agents()
	x.gateways()
	x.controllers()
	x.webhooks()
	x.tell()
	done := make(chan struct{})
	x.keep(done)
	const longest = 100 * time.Second // of staleness, above all
	x.m.awaitAlerts(t, map[string]string{"PortolanGatewayNoLeader": "late-gateway"}, longest)
	x.confirm("PortolanGatewayNoLeader")
	x.lead()
	x.m.awaitAlerts(t, causes, longest)
	for _, name := range slices.Sorted(maps.Keys(causes)) {
		if name != "PortolanGatewayNoLeader" {
			x.confirm(name)
		}
	}
	close(done)
	for _, h := range x.hosts {
		for _, p := range h.processes {
			p.stop(syscall.SIGKILL)
		}
	}
	without := make(map[string]string)
	for _, name := range gone {
		without[name] = ""
	}
	x.m.awaitAlerts(t, without, longest)
	for _, name := range gone {
		x.confirm(name)
	}
}

// alertsIn returns the names of the alerts of rules.
func alertsIn(rules string) (names []string) {
	for _, m := range regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(rules, -1) {
		names = append(names, m[1])
	}
	return slices.Sorted(slices.Values(names))
}

// awaitAlerts waits until alerts have fired, not necessarily at the same time, for the given instances, or without an
// instance. It fails the test for each that has not.
func (m *monitor) awaitAlerts(t *testing.T, instances map[string]string, longest time.Duration) {
	t.Helper()
	missing := maps.Clone(instances)
	_ = await.Within(longest, func() error {
		all, err := m.alerts()
		if err != nil {
			return err
		}
		for _, a := range all {
			name := a.Labels["alertname"]
			if of, has := a.Labels["instance"]; a.State == "firing" && (!has || of == missing[name]) {
				delete(missing, name)
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("%d alerts do not fire", len(missing))
		}
		return nil
	})
	for name, instance := range missing {
		t.Errorf("%s does not fire for %s", name, instance)
	}
}

// confirm checks that the runbook of an alert that fires shows it: its queries have data, and its commands print what
// the page says.
func (x *troubles) confirm(name string) {
	x.t.Run(name, func(t *testing.T) {
		page := readFile(t, "../../docs/runbooks/"+name+".md")
		queries := blocks(page, "promql")
		if len(queries) == 0 {
			t.Error("the page has no query")
		}
		for _, expr := range queries {
			found, err := x.m.query(expr)
			if !slices.ContainsFunc(found, func(s series) bool {
				of, has := s.Metric["instance"]
				return !has || of == causes[name]
			}) {
				t.Errorf("no data of %s for %q: %v, %v", expr, causes[name], found, err)
			}
		}
		for _, block := range blocks(page, "console") {
			for _, command := range strings.Split(block, "$ ")[1:] {
				command, want, _ := strings.Cut(command, "\n")
				x.wantPrinted(t, causes[name], command, want)
			}
		}
	})
}

// blocks returns the blocks of code of a page in a language.
func blocks(page, language string) (all []string) {
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(page, -1) {
		all = append(all, m[1])
	}
	return all
}

// wantPrinted checks that a command prints lines, in which "..." is any text, and lines may go on.
func (x *troubles) wantPrinted(t *testing.T, instance, command, want string) {
	t.Helper()
	h := x.hosts[instance]
	if h == nil {
		t.Fatalf("%s: no host %q", command, instance)
	}
	const while = 5 * time.Second // the metrics may lag behind the alert
	err := await.Within(while, func() error {
		out, err := h.shell(command)
		if err != nil {
			return fmt.Errorf("%s: %w: %s", command, err, out)
		}
		for line := range strings.Lines(want) {
			pattern := strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(line)), `\.\.\.`, ".*")
			if !regexp.MustCompile("(?m)^" + pattern).MatchString(out) {
				return fmt.Errorf("%s prints\n%s\nwant %s", command, out, line)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
