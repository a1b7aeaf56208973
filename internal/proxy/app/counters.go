package app

import (
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/proxy/frontend"
	"portolan.dev/portolan/internal/proxy/nft"
	"portolan.dev/portolan/internal/proxy/plan"
)

// countersInterval is the shortest interval between reads of the kernel's counters, however often
// metrics are collected.
const countersInterval = 5 * time.Second

// counters are the kernel's counters of connections, as metrics. A nil *counters does nothing.
type counters struct {
	log   *slog.Logger
	total *prometheus.Desc

	// connections reads the kernel: nft.Connections.
	connections func(nft.Config) (map[frontend.Address]uint64, error)

	reading sync.Mutex // guards counts and read; held while the kernel is read
	counts  map[frontend.Address]uint64
	read    time.Time // when counts were read

	mu     sync.Mutex // guards the fields below; changes wait for it
	config nft.Config // of the table; zero before there is one
	owners map[frontend.Address]servicePort
}

// servicePort is a port of a Service, at addresses of one kind.
type servicePort struct {
	service        cluster.Key
	port, protocol string
	kind           plan.AddressKind
}

func newCounters(log *slog.Logger) *counters {
	return &counters{log: log, connections: nft.Connections, total: prometheus.NewDesc(
		"portolan_proxy_service_connections_total",
		"Connections to a port of a Service, whether they were forwarded or not.",
		[]string{"namespace", "service", "port", "protocol", "kind"}, nil,
	)}
}

// replace records the owners of all addresses.
func (c *counters) replace(v *cluster.View, from *plan.Compiler, config nft.Config) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.config, c.owners = config, make(map[frontend.Address]servicePort)
	for at := range from.Addresses() {
		c.own(v, from, at)
	}
}

// update records the owners of addresses that changed.
func (c *counters) update(v *cluster.View, from *plan.Compiler) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for at := range from.Touched() {
		delete(c.owners, at)
		c.own(v, from, at)
	}
}

// own records the owner of an address, if it has one.
func (c *counters) own(v *cluster.View, from *plan.Compiler, at frontend.Address) {
	key, ok := from.Owner(at)
	if !ok {
		return
	}
	s := v.Service(key)
	if i, kind, ok := plan.Describe(s, at); ok {
		c.owners[at] = servicePort{key, s.Ports[i].Name, at.Protocol.String(), kind}
	}
}

// Describe sends the description of the metric.
func (c *counters) Describe(ch chan<- *prometheus.Desc) { ch <- c.total }

// Collect sends a counter for each port of a Service and kind of address. If the kernel cannot be
// read, they are what they were.
func (c *counters) Collect(ch chan<- prometheus.Metric) {
	for of, n := range c.sums() {
		ch <- prometheus.MustNewConstMetric(c.total, prometheus.CounterValue, float64(n),
			of.service.Namespace, of.service.Name, of.port, of.protocol, string(of.kind))
	}
}

// sums returns the number of connections to each port of a Service and kind of address. Changes
// do not wait while the kernel is read.
func (c *counters) sums() map[servicePort]uint64 {
	c.reading.Lock()
	defer c.reading.Unlock()
	c.mu.Lock()
	config := c.config
	c.mu.Unlock()
	if config.Families == nil {
		return nil
	}
	if time.Since(c.read) >= countersInterval {
		counts, err := c.connections(config)
		if err != nil {
			c.log.Warn("the counters of connections cannot be read", "err", err)
		} else {
			c.counts = counts
		}
		c.read = time.Now()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	sums := make(map[servicePort]uint64)
	for at, n := range c.counts {
		if of, ok := c.owners[at]; ok {
			sums[of] += n
		}
	}
	return sums
}
