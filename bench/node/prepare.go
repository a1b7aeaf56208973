package node

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"portolan.dev/portolan/bench/fakeapi"
	"portolan.dev/portolan/bench/rig"
	"portolan.dev/portolan/bench/synthetic"
	"portolan.dev/portolan/test/netns/nodes"
)

// bench is the state that all measurements share.
type bench struct {
	*settings
	log     *slog.Logger
	dir     string
	machine string

	portolan, coreDNS *rig.Program
	parts             []part
	ways              []way
	faults            []fault

	world        *nodes.World
	cluster      *synthetic.Cluster
	api          *fakeapi.Server
	stopUpstream func()
	logs         int // number of log files so far
	changed      int // number of changed endpoints so far
}

// podNumbers are the numbers in the cluster of the Pods that look up names.
var podNumbers = [nodes.Count]int{17, 18}

func (b *bench) file(name string) string { return filepath.Join(b.dir, name) }

// prepare builds the programs and creates the network.
func (b *bench) prepare(ctx context.Context) (err error) {
	if err := b.choose(); err != nil {
		return err
	}
	workshop, err := rig.NewWorkshop(ctx, b.log, b.dir)
	if err != nil {
		return err
	}
	if b.portolan, err = workshop.Program(ctx, rig.NamePortolan); err != nil {
		return err
	}
	if b.coreDNS, err = workshop.Program(ctx, rig.NameCoreDNS); err != nil {
		return err
	}
	if err := nodes.BuildLookup(b.dir); err != nil {
		return err
	}
	for _, file := range []string{serverSecret, agentSecret} {
		if err := b.writeSecret(file, secret); err != nil {
			return err
		}
	}
	b.cluster = &synthetic.Cluster{Namespaces: 10, Services: [synthetic.Kinds]int{2000, 100}, Pods: 100}
	if err := b.makeWorld(); err != nil {
		b.close()
		return err
	}
	return nil
}

// secret is the secret of the key of servers and agents.
const secret = "c2VjcmV0IG9mIHRoZSBtZWFzdXJlbWVudHMgb2Ygbm9kZXM="

func (b *bench) writeSecret(file, base64 string) error {
	return os.WriteFile(b.file(file), []byte(base64+"\n"), 0o600)
}

// choose selects parts, faults and ways by name.
func (b *bench) choose() error {
	chosen, err := rig.Choose(partNames(), b.settings.parts)
	if err != nil {
		return err
	}
	b.parts = slices.DeleteFunc(parts(), func(p part) bool { return !slices.Contains(chosen, p.name) })
	if chosen, err = rig.Choose(wayNames(), b.settings.ways); err != nil {
		return err
	}
	b.ways = slices.DeleteFunc(ways(), func(w way) bool { return !slices.Contains(chosen, w.name) })
	if chosen, err = rig.Choose(faultNames(), b.settings.faults); err != nil {
		return err
	}
	b.faults = slices.DeleteFunc(faults(), func(f fault) bool { return !slices.Contains(chosen, f.name) })
	return nil
}

func (b *bench) makeWorld() (err error) {
	var pods [nodes.Count]netip.Addr
	for i, number := range podNumbers {
		pods[i] = netip.MustParseAddr(b.cluster.Pod(number).Status.PodIP)
	}
	if b.world, err = nodes.New(pods); err != nil {
		return err
	}
	if b.stopUpstream, err = b.world.ServeUpstream(); err != nil {
		return err
	}
	return b.serveCluster(b.cluster)
}

// serveCluster replaces the API server by one with the given cluster.
func (b *bench) serveCluster(c *synthetic.Cluster) error {
	if b.api != nil {
		b.api.Close()
	}
	err := b.world.Server.Do(func() (err error) {
		b.api, err = fakeapi.New(c)
		return err
	})
	if err != nil {
		return err
	}
	return b.api.Kubeconfig(b.file("kubeconfig"))
}

// close stops everything.
func (b *bench) close() {
	if b.api != nil {
		b.api.Close()
	}
	if b.stopUpstream != nil {
		b.stopUpstream()
	}
	if b.world != nil {
		b.world.Close()
	}
}

// start starts a program in a place, with a configuration file of this name and a
// separate log.
func (b *bench) start(at *nodes.Place, file, config, program string, args ...string) (*nodes.Process, error) {
	if err := os.WriteFile(b.file(file), []byte(config), 0o600); err != nil {
		return nil, err
	}
	b.logs++
	return at.Start(b.file(fmt.Sprintf("%d.log", b.logs)), program, args...)
}

// namespace returns the namespace of a Pod that looks up names.
func (b *bench) namespace(pod int) string { return b.cluster.NamespaceName(podNumbers[pod]) }

// short returns the name of a Service in the Pod's namespace, without the namespace.
// twoPart returns a name with its namespace. There are many of each, by number.
func (b *bench) short(pod, i int) nodes.Want {
	i = b.serviceNumber(podNumbers[pod]%b.cluster.Namespaces + b.cluster.Namespaces*i)
	return nodes.Want{Name: b.cluster.ServiceName(synthetic.ClusterIP, i), Addrs: []netip.Addr{b.cluster.ClusterIP(i)}}
}

func (b *bench) twoPart(_, i int) nodes.Want {
	i = b.serviceNumber(i)
	name := b.cluster.ServiceName(synthetic.ClusterIP, i) + "." + b.cluster.NamespaceName(i)
	return nodes.Want{Name: name, Addrs: []netip.Addr{b.cluster.ClusterIP(i)}}
}

func (b *bench) serviceNumber(i int) int { return i % b.cluster.Services[synthetic.ClusterIP] }

func external(_, i int) nodes.Want {
	name, addrs := nodes.External(i)
	return nodes.Want{Name: name, Addrs: addrs}
}

func missing(_, i int) nodes.Want { return nodes.Want{Name: fmt.Sprintf("nosuch%d", i)} }

// whole returns the fully qualified name of twoPart.
func (b *bench) whole(i int) nodes.Want {
	w := b.twoPart(0, i)
	w.Name += ".svc." + synthetic.Domain
	return w
}

// patience is the timeout for expected events.
const patience = 30 * time.Second

// await waits until a server gives a place the right answer.
func await(ctx context.Context, from *nodes.Place, server netip.Addr, want nodes.Want) error {
	const pause = 10 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		q, err := from.Ask(server, want, 10*pause)
		if err != nil || q.Result == nodes.Right {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not say %s in %v", server, want.Name, patience)
		case <-time.After(pause):
		}
	}
}
