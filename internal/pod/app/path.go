package app

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/pod/connection"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/explain"
	"portolan.dev/portolan/internal/pod/path"
	"portolan.dev/portolan/internal/pod/request"
)

// Way is the input of Path: from where, and to what.
type Way struct {
	// Client is nil if it is not known; then there must be a Message.
	Client *connection.Client
	Target connection.Target
	// Service replaces the target's host, and Message the target: they are the Service's full name, and the host and the
	// port of a URL. Service is the zero key, and Message nil, if there is none.
	Service cluster.Key
	Message *request.Message
	// Namespace is that of a Service that the target names without one, for a Client that is no Pod.
	Namespace string
	// DNS is how the host is looked up, by a Client that is a Pod; its name is the target's.
	DNS Question
	// Lookup is how it was looked up; nil does it.
	Lookup *explain.Explanation
	// To is the Pod or workload that is connected to, instead of the target's host.
	To *dnsconfig.Subject
	// Kernel reads what the kernel has, and Judge asks it what it lets pass; nil do not.
	Kernel *connection.KernelReader
	Judge  *connection.KernelJudge
}

// Path explains all layers on a way. It returns an error if the node of the client must be named.
//
// What was compiled for an explanation is kept for the next one, until the model changes: explanations follow one
// another on the page, and in a large cluster it takes longer than all the rest.
func (i *Inspector) Path(ctx context.Context, w Way) (e *path.Explanation, err error) {
	if w.DNS.Live != nil || w.Kernel != nil || w.Judge != nil { // waits, and must not keep other explanations waiting
		i.store.View(func(v *cluster.View) { e, err = i.newWalker(v, w.DNS.Node).path(ctx, &w) })
		return e, err
	}
	i.kept.Lock()
	defer i.kept.Unlock()
	i.store.View(func(v *cluster.View) { e, err = i.walkerAt(v, w.DNS.Node).path(ctx, &w) })
	return e, err
}

// kept is a walker for one state of the model and one setting of nodes.
type kept struct {
	sync.Mutex
	walker  *walker // nil before the first explanation
	version uint64
	node    NodeSettings
}

// walkerAt returns the walker that is kept, or a new one if the model or the settings are others. The mutex of kept is
// held.
func (i *Inspector) walkerAt(v *cluster.View, n NodeSettings) *walker {
	k := &i.kept
	// A view is a handle of the present state, which the version identifies.
	if version := i.store.Version(); k.walker == nil || k.version != version || !k.node.equal(&n) {
		k.walker, k.version, k.node = i.newWalker(v, n), version, n
	}
	k.walker.world.Linter.Now = time.Now()
	return k.walker
}

// walker explains ways through one state of the model.
type walker struct {
	*Inspector
	view     *cluster.View
	world    *connection.World
	settings *connection.Settings
	gateway  *request.World // nil before the first request
}

// newWalker returns a walker. The node's settings are those of all Pods' nodes.
func (i *Inspector) newWalker(v *cluster.View, n NodeSettings) *walker {
	settings := i.proxySettings()
	// A cluster DNS at a link-local address is that of an agent on the node.
	for _, addr := range n.ClusterDNS {
		if addr.IsLinkLocalUnicast() {
			settings.Resolvers = append(settings.Resolvers, addr)
		}
	}
	return &walker{Inspector: i, view: v, world: connection.NewWorld(v, i.rules(v, n), settings), settings: settings}
}

// path explains all layers on a way.
func (w *walker) path(ctx context.Context, of *Way) (*path.Explanation, error) {
	target := w.target(of)
	r := path.Request{
		World: w.world, Message: of.Message, Now: time.Now(), Target: target, Namespace: of.Namespace, To: of.To,
		Kernel: of.Kernel, Judge: of.Judge, Published: w.published(),
	}
	if of.Message != nil {
		if w.gateway == nil {
			w.gateway = request.NewWorld(w.view, w.Inspector.gateway(), w.loaded.Partial...)
		}
		r.Gateway = w.gateway
	}
	if of.Client != nil {
		client := *of.Client
		if err := located(w.view, w.settings, &client); err != nil {
			return nil, err
		}
		r.Client = &client
		switch {
		case of.Lookup != nil:
			r.DNS = of.Lookup
		case of.looksUp(target.Host):
			question := of.DNS
			question.Name, question.Routed = target.Host, of.Message != nil && w.gateway.Names(of.Message)
			r.DNS = w.explain(ctx, w.world.Linter, question)
		}
	}
	return path.Explain(&r), nil
}

// target returns what the client connects to.
func (i *Inspector) target(of *Way) connection.Target {
	target := of.Target
	switch domains := i.Domains(); {
	case of.Message != nil:
		target = path.TargetOf(of.Message)
	case of.Service.Name != "" && len(domains) > 0:
		target.Host = of.Service.Name + "." + of.Service.Namespace + ".svc." + domains[0] + "."
	}
	return target
}

// looksUp reports whether the client looks the host up, with the cluster DNS: it is a Pod, and the host a name.
func (w *Way) looksUp(host string) bool {
	_, bad := netip.ParseAddr(host)
	return bad != nil && w.To == nil && w.Client != nil && w.Client.Place == connection.InPod
}

// published returns the Service of the gateway; the zero key if the settings name none.
func (i *Inspector) published() cluster.Key { return i.compiled.Gateway.Compile.Publish.Service }
