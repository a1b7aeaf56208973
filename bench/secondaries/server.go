package secondaries

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"portolan.dev/portolan/bench/fakeapi"
	"portolan.dev/portolan/bench/rig"
	"portolan.dev/portolan/internal/dns/dnsname"
	"portolan.dev/portolan/internal/dns/dnswire"
)

// key is the key that signs all transfers and NOTIFYs.
type key struct {
	dnswire.TSIGKey
	file string // the file with its secret
}

func newKey(dir string) (*key, error) {
	k := &key{file: filepath.Join(dir, "secret")}
	k.Name, k.Algorithm, k.Secret = dnsname.MustParse("replica"), dnswire.HMACSHA256, make([]byte, 32)
	_, _ = rand.Read(k.Secret) // never fails
	return k, os.WriteFile(k.file, []byte(base64.StdEncoding.EncodeToString(k.Secret)), 0o600)
}

// settings returns the key's entry for a configuration file.
func (k *key) settings() string {
	return fmt.Sprintf("{name: %s, algorithm: %s, secretFile: %q}", k.Name, k.Algorithm, k.file)
}

// window is the result of a measurement during some time.
type window struct {
	took           time.Duration
	server, node   time.Duration // processor time
	memory         float64       // of the server at the end, MiB
	changes        float64
	notices        float64 // received
	transfers      float64 // incremental
	messages       float64 // of transfers
	noticeOctets   float64
	octets, asking float64 // of transfers, to and from followers
	nodes          int     // the number of followers
}

// following is the result for a server with followers that first only receive NOTIFY
// and then also transfer.
type following struct{ told, follows window }

// world is a server with its followers.
type world struct {
	*bench
	churn  *churn
	server *rig.Server
	node   *rig.Server // an agent; nil if there is none
	nodeAt netip.AddrPort
	// nodePort reserves the agent's port until it starts; nil without an agent.
	nodePort *net.UDPConn
	counts   counts
	asks     atomic.Bool
	group    errgroup.Group
	all      []*follower
}

// startWorld starts a server for the data of api and the followers. If there are any,
// one of them is an agent.
func (b *bench) startWorld(ctx context.Context, api *fakeapi.Server, c *churn, followers int) (w *world, err error) {
	w = &world{bench: b, churn: c}
	var tell []string
	for range followers - 1 {
		udp, err := listen()
		if err != nil {
			return w, err
		}
		w.all = append(w.all, &follower{key: &b.key.TSIGKey, udp: udp, counts: &w.counts, asks: &w.asks})
		tell = append(tell, fmt.Sprintf("%q", addressOf(udp)))
	}
	if followers > 0 {
		if w.nodePort, err = listen(); err != nil {
			return w, err
		}
		w.nodeAt = addressOf(w.nodePort)
		tell = append(tell, fmt.Sprintf("%q", w.nodeAt))
	}
	if err := w.startServer(ctx, api, tell); err != nil {
		return w, err
	}
	for _, f := range w.all {
		w.group.Go(func() error { return f.run(ctx) })
	}
	return w, nil
}

func (w *world) startServer(ctx context.Context, api *fakeapi.Server, tell []string) error {
	kubeconfig, config := filepath.Join(w.dir, "kubeconfig"), filepath.Join(w.dir, "server.yaml")
	text := fmt.Sprintf("dns: {transfer: {keys: [%s], allow: [{key: %s}], notify: [%s]}}\n", w.key.settings(),
		w.key.Name, strings.Join(tell, ", "))
	if err := errors.Join(api.Kubeconfig(kubeconfig), os.WriteFile(config, []byte(text), 0o600)); err != nil {
		return err
	}
	var err error
	w.server, err = rig.Portolan(w.portolan, filepath.Join(w.dir, "portolan.log"), "--kubeconfig", kubeconfig,
		"--config", config).Start()
	if err != nil {
		return err
	}
	return w.server.WaitReady(ctx)
}

// stop stops everything. The context of the followers must be done. stop returns the
// error of a follower that failed.
func (w *world) stop() error {
	if w.node != nil {
		w.node.Stop()
	}
	if w.server != nil {
		w.server.Stop()
	}
	if w.nodePort != nil {
		w.nodePort.Close()
	}
	err := w.group.Wait()
	for _, f := range w.all {
		f.close()
		if f.stream != nil {
			f.Close()
		}
	}
	return err
}

// measure measures while EndpointSlices change.
func (w *world) measure(ctx context.Context) (m window, err error) {
	// First, all followers start and catch up.
	const warm = 1500 * time.Millisecond
	stop := w.churn.start(ctx)
	time.Sleep(warm)
	before, err := w.look()
	if err == nil {
		time.Sleep(w.duration)
		m, err = w.look()
	}
	if err = errors.Join(err, stop()); err != nil {
		return m, err
	}
	m.subtract(&before)
	m.nodes = len(w.all)
	m.memory, _, err = w.server.Memory()
	return m, err
}

// look reads the counters.
func (w *world) look() (m window, err error) {
	c := &w.counts
	m = window{
		took: time.Duration(time.Now().UnixNano()), changes: float64(w.churn.changed.Load()),
		notices: float64(c.notices.Load()), transfers: float64(c.transfers.Load()), messages: float64(c.messages.Load()),
		noticeOctets: float64(c.noticeOctets.Load()), octets: float64(c.sent.Load()), asking: float64(c.asked.Load()),
	}
	if m.server, err = w.server.ProcessorTime(); err == nil && w.node != nil {
		m.node, err = w.node.ProcessorTime()
	}
	return m, err
}

func (m *window) subtract(before *window) {
	m.took -= before.took
	m.server -= before.server
	m.node -= before.node
	for to, from := range map[*float64]float64{
		&m.changes: before.changes,
		&m.notices: before.notices, &m.transfers: before.transfers, &m.messages: before.messages,
		&m.noticeOctets: before.noticeOctets, &m.octets: before.octets, &m.asking: before.asking,
	} {
		*to -= from
	}
}

// measureServer measures the server alone, with followers and with whole transfers.
func (b *bench) measureServer(ctx context.Context, h *half) error {
	c := b.cluster(h.kind)
	api, err := fakeapi.New(c)
	if err != nil {
		return err
	}
	defer api.Close()
	changes := &churn{cluster: c, kind: h.kind, put: api.Put}
	for n := range b.rounds {
		b.log.Info("measuring the server", "round", n+1, "of", c.ServiceName(h.kind, 0))
		if err := b.round(ctx, api, changes, h); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) round(ctx context.Context, api *fakeapi.Server, c *churn, h *half) error {
	err := b.in(ctx, api, c, 0, func(ctx context.Context, w *world) error {
		m, err := w.measure(ctx)
		h.alone = append(h.alone, m)
		return err
	})
	for i, n := range h.counts {
		if err != nil {
			break
		}
		err = b.in(ctx, api, c, n, func(ctx context.Context, w *world) error {
			return w.measureFollowing(ctx, h, n, i == 0)
		})
	}
	return err
}

// in calls a function with a new world.
func (b *bench) in(
	ctx context.Context,
	api *fakeapi.Server,
	c *churn,
	followers int,
	do func(context.Context, *world) error,
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := b.startWorld(ctx, api, c, followers)
	if err == nil {
		err = do(ctx, w)
	}
	cancel()
	return errors.Join(err, w.stop())
}

// measureFollowing measures n followers. If first is set, it also measures the agent
// and whole transfers.
func (w *world) measureFollowing(ctx context.Context, h *half, n int, first bool) (err error) {
	var f following
	if f.told, err = w.measure(ctx); err != nil {
		return err
	}
	this, err := w.startNode(ctx)
	if err != nil {
		return err
	}
	if err := w.begin(); err != nil {
		return err
	}
	if f.follows, err = w.measure(ctx); err != nil {
		return err
	}
	h.followers[n] = append(h.followers[n], f)
	if err := w.agree(ctx); err != nil {
		return err
	}
	if err := w.finishNode(&this, &f.follows); err != nil || !first {
		return err
	}
	h.node = append(h.node, this)
	all, err := w.measureWhole(ctx)
	h.whole = append(h.whole, all)
	return err
}

// begin makes the followers start to transfer, from the server's current version. The
// zone does not change meanwhile.
func (w *world) begin() error {
	rdata, err := ask(w.server.DNS, apex.String(), dnswire.TypeSOA)
	if err != nil {
		return err
	}
	if len(rdata) != 1 {
		return fmt.Errorf("the server has %d SOAs", len(rdata))
	}
	soa, ok := dnswire.ParseSOA(apex, 0, []byte(rdata[0]))
	if !ok {
		return fmt.Errorf("the server's SOA is %q", rdata)
	}
	for _, f := range w.all {
		f.soa = &soa
		if f.stream, err = dial(w.server.DNS); err != nil {
			return err
		}
	}
	w.asks.Store(true)
	return nil
}
