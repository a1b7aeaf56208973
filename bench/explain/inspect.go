package explain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"syscall"
	"time"

	"portolan.dev/portolan/bench/synthetic"
	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	dnsapp "portolan.dev/portolan/internal/dns/app"
	"portolan.dev/portolan/internal/kube/source"
	podapp "portolan.dev/portolan/internal/pod/app"
	"portolan.dev/portolan/internal/pod/connection"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/request"
	"portolan.dev/portolan/internal/proxy/frontend"
)

// process has what a running process explains with: the model, its DNS and an Inspector.
type process struct {
	paths *synthetic.Paths
	store *cluster.Store
	dns   *dnsapp.DNS
	pods  *podapp.Inspector
	// changes counts the calls of change.
	changes int
}

// settingsOf returns the settings of a process that reads manifests, and forwards nothing.
func settingsOf(dir string) config.Config {
	settings := config.Default()
	settings.Manifests, settings.DNS.Forward.Routes = dir, nil
	return settings
}

// newProcess reads the manifests of paths as a process with these settings does.
func newProcess(ctx context.Context, paths *synthetic.Paths, settings config.Config) (p *process, err error) {
	log := slog.New(slog.DiscardHandler)
	p = &process{paths: paths, store: cluster.NewStore()}
	if p.dns, err = dnsapp.New(dnsapp.Config{Settings: settings, Store: p.store, Log: log}); err != nil {
		return nil, err
	}
	from, err := source.New(source.Config{Settings: settings, Scope: source.Whole, Store: p.store, Log: log})
	if err != nil {
		return nil, err
	}
	loaded, err := from.Load(ctx)
	if err != nil {
		return nil, err
	}
	p.dns.Compile()
	if p.pods, err = podapp.New(settings, p.store, p.dns.Responder()); err != nil {
		return nil, err
	}
	p.pods.Loaded(loaded)
	return p, nil
}

// way returns the nth way of a kind, from a Pod. No two have a Service in common.
func (p *process) way(k kind, n int) (w podapp.Way, err error) {
	pod := cluster.Key{Namespace: p.paths.Namespace(n), Name: p.paths.PodName(n)}
	var found *cluster.Pod
	p.store.View(func(v *cluster.View) { found = v.Pod(pod) })
	if found == nil {
		return w, fmt.Errorf("pod %s does not exist", pod)
	}
	w.Client = &connection.Client{Subject: dnsconfig.SubjectOfPod(found)}
	w.DNS = podapp.Question{Subject: w.Client.Subject, Libc: dnsconfig.Glibc}
	w.Namespace = pod.Namespace
	if k == toURL {
		m, err := request.ParseMessage("GET", k.target(p.paths, n), nil)
		w.Message = &m
		return w, err
	}
	w.Target = connection.Target{Host: p.paths.Host(n), Port: "80", Protocol: frontend.TCP}
	return w, nil
}

// explain explains the nth way of a kind, and returns what that took, without the memory.
func (p *process) explain(ctx context.Context, k kind, n int) (c cost, err error) {
	w, err := p.way(k, n)
	if err != nil {
		return c, err
	}
	used, begin := processorTime(), time.Now()
	e, err := p.pods.Path(ctx, w)
	c = cost{wall: time.Since(begin), cpu: processorTime() - used}
	if err == nil && e.Connection == nil {
		err = errors.New("there is no connection in the explanation")
	}
	return c, err
}

// processorTime returns what this process has used, its collection of garbage included.
func processorTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// change changes the EndpointSlice of the nth Service, as a Pod that is replaced does.
func (p *process) change(n int) {
	p.changes++
	p.store.Update(func(tx *cluster.Tx) {
		for _, s := range tx.SlicesOf(cluster.Key{Namespace: p.paths.Namespace(n), Name: p.paths.ServiceName(n)}) {
			changed := *s
			changed.Endpoints = append([]cluster.Endpoint(nil), s.Endpoints...)
			changed.Endpoints[0].Addr = synthetic.Nth("10.192.0.0", p.changes)
			tx.Put(&changed)
		}
	})
}

// heap returns what the process holds, in octets.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
