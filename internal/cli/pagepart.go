package cli

import (
	"cmp"
	"log/slog"
	"slices"
	"strings"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/daemon"
	dnsapp "portolan.dev/portolan/internal/dns/app"
	"portolan.dev/portolan/internal/kube/source"
	podapp "portolan.dev/portolan/internal/pod/app"
	"portolan.dev/portolan/internal/pod/view"
)

// pageOf is what the page of a process shows.
type pageOf struct {
	command string
	store   *cluster.Store // nil if the process reads no cluster
	source  *source.Source // nil without a store
	// dns is what the process answers with; nil if it answers from no zones of its own.
	dns *dnsapp.DNS
	// forwards is what forwards names outside the cluster; nil if nothing does.
	forwards *dnsapp.DNS
	alone    bool
}

// addPage adds the page to a process, unless it is switched off.
func (a assembly) addPage(cfg *daemon.Config, of pageOf) error {
	if a.settings.Admin.Page == config.PageOff || a.settings.Admin.Listen == "" {
		return nil
	}
	page := podapp.PageConfig{
		Settings: a.settings, Version: version(), Command: "portolan " + of.command, Store: of.store, Alone: of.alone,
		Whole: of.store != nil && a.settings.Admin.Page == config.PageCluster, Log: a.log,
	}
	switch {
	case of.dns != nil:
		page.Zones = of.dns.Examine()
	case of.store != nil:
		zones, err := dnsapp.NewOnDemand(
			dnsapp.Config{Settings: a.settings, Store: of.store, Log: slog.New(slog.DiscardHandler)},
		)
		if err != nil {
			return err
		}
		page.Zones = zones
	}
	if of.source != nil {
		page.Sources = func() []view.Source { return sourcesOf(of.source) }
	}
	if of.forwards != nil {
		page.Upstreams = func() []view.Upstream { return upstreamsOf(of.forwards) }
	}
	page.Failures = failuresOf(a.evidence)
	part := podapp.NewPage(page)
	cfg.Parts = append(cfg.Parts, part)
	cfg.Observe = func(states func() []daemon.PartState) {
		part.Parts(func() []view.Part { return partsOf(states()) })
	}
	return nil
}

// pageKinds are the kinds that the page reads. Secrets are left to gateways, which have the right to read them.
var pageKinds = append([]cluster.Kind{
	cluster.KindNamespace, cluster.KindService, cluster.KindEndpointSlice, cluster.KindPod, cluster.KindNode,
	cluster.KindDeployment, cluster.KindStatefulSet, cluster.KindDaemonSet, cluster.KindJob, cluster.KindCronJob,
	cluster.KindNetworkPolicy, cluster.KindClusterNetworkPolicy, cluster.KindIngress, cluster.KindServiceCIDR,
}, slices.DeleteFunc(slices.Clone(gatewayKinds), func(k cluster.Kind) bool {
	return slices.Contains(cluster.ReferencedKinds(), k)
})...)

// withPage returns how a process reads the cluster: as the page does, too, if the settings say so.
func (a assembly) withPage(cfg source.Config) source.Config {
	if a.settings.Admin.Page != config.PageCluster || a.settings.Admin.Listen == "" {
		return cfg
	}
	cfg.Page, cfg.Node = pageKinds, ""
	return cfg
}

// sourcesOf returns how current the kinds are that a source reads.
func sourcesOf(src *source.Source) (all []view.Source) {
	for _, s := range src.States() {
		made := view.Source{
			Kind: s.Kind.String(), Objects: s.Objects, State: view.Current, StalenessSeconds: s.Staleness.Seconds(),
		}
		switch s.State {
		case source.StateLoading:
			made.State = view.Loading
			if s.Problem != nil {
				made.State = view.Absent
			}
		case source.StateSnapshot:
			made.State, made.Why = view.Stale, "read from the snapshot"
		case source.StateStale:
			made.State = view.Stale
		}
		if s.Problem != nil {
			made.Why = s.Problem.Error()
		}
		all = append(all, made)
	}
	slices.SortFunc(all, func(a, b view.Source) int { return cmp.Compare(a.Kind, b.Kind) })
	return slices.CompactFunc(all, func(a, b view.Source) bool { return a.Kind == b.Kind })
}

// upstreamsOf returns the servers that names outside the cluster are asked of.
func upstreamsOf(dns *dnsapp.DNS) (all []view.Upstream) {
	for _, u := range dns.Upstreams() {
		all = append(all, view.Upstream{
			Route: u.Route, Address: cmp.Or(u.Upstream, u.Address.String()), Up: !u.Down, Failures: u.Failures + u.Late,
			LatencySeconds: u.RTT.Round(time.Microsecond).Seconds(),
		})
	}
	return all
}

// partsOf returns the parts of a process, without the page itself.
func partsOf(states []daemon.PartState) (all []view.Part) {
	for _, s := range states {
		if s.Name == new(podapp.Page).Name() {
			continue
		}
		all = append(all, view.Part{
			Name: s.Name, Ready: len(s.Missing) == 0, Missing: append([]string{}, s.Missing...),
			Remarks: append([]string{}, s.Remarks...),
		})
	}
	slices.SortStableFunc(all, func(a, b view.Part) int { return strings.Compare(a.Name, b.Name) })
	return all
}
