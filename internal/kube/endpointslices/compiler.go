package endpointslices

import (
	"cmp"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"

	discoveryv1 "k8s.io/api/discovery/v1"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/support/parallel"
)

// Config is what a Compiler is made of.
type Config struct {
	// MaxEndpoints is how many endpoints a slice holds at most, up to
	// MaxMaxEndpoints; 0 is DefaultMaxEndpoints.
	MaxEndpoints int
	// Log is told what is left out of slices; nil is one that nobody reads.
	Log *slog.Logger
}

// Validate refuses what can't be.
func (c Config) Validate() error {
	if c.MaxEndpoints < 0 || c.MaxEndpoints > MaxMaxEndpoints {
		return fmt.Errorf("%d endpoints a slice: may be 1 to %d", c.MaxEndpoints, MaxMaxEndpoints)
	}
	return nil
}

// Compiler keeps the slices of all Services of a model that have selectors and
// no slices of others: those that are declared count instead.
type Compiler struct {
	cfg     Config
	index   *Index
	nodes   *Nodes
	workers []*worker
	begun   bool

	mu   sync.Mutex // for made
	made map[cluster.Key]*made
}

// made is what a Service has from us.
type made struct {
	service *cluster.Service
	slices  []*discoveryv1.EndpointSlice // by name; not changed any more
	// model are the same as they are in the model. Ours are known by these
	// pointers: what is declared may be called and labelled like them.
	model   []*cluster.EndpointSlice
	refused refusals
	plain   *plainness // nil when changes of its Pods are not
}

// has tells whether a slice of the model is one of these.
func (m *made) has(s *cluster.EndpointSlice) bool {
	if m == nil {
		return false
	}
	i := place(m.model, s.Name)
	return i < len(m.model) && m.model[i] == s
}

// place is where the slice of that name is, or would be, among those by name.
func place(sorted []*cluster.EndpointSlice, name string) int {
	i, _ := slices.BinarySearchFunc(sorted, name, func(s *cluster.EndpointSlice, name string) int { return cmp.Compare(s.Name, name) })
	return i
}

// New makes a Compiler. Its Config is valid.
func New(cfg Config) *Compiler {
	cfg.MaxEndpoints = cmp.Or(cfg.MaxEndpoints, DefaultMaxEndpoints)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	c := &Compiler{cfg: cfg, index: NewIndex(), nodes: NewNodes(NodesDeclared), made: make(map[cluster.Key]*made)}
	for range runtime.GOMAXPROCS(0) {
		c.workers = append(c.workers, newWorker(c))
	}
	return c
}

// Slices are those made for a Service, by name. They must not be changed.
func (c *Compiler) Slices(service cluster.Key) []*discoveryv1.EndpointSlice {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.made[service]; m != nil {
		return slices.Clone(m.slices)
	}
	return nil
}

// Complete brings the slices up to date of the Services that the transaction
// touched, in it. It does nothing until all kinds that it needs are loaded.
func (c *Compiler) Complete(tx *cluster.Tx) {
	if !tx.Loaded(cluster.KindService, cluster.KindPod, cluster.KindNode, cluster.KindEndpointSlice) {
		return
	}
	changes := tx.Changed()
	if !c.begun {
		c.begun = true
		changes.Everything = true
	}
	if changes.Everything || hasNodes(changes) {
		c.nodes.Set(tx.View)
	}
	touched := c.index.Update(tx.View, changes)
	jobs := make([]*job, 0, len(touched))
	for key, t := range touched {
		if j := c.job(tx.View, key, t); j != nil {
			j.at = tx.EndpointSlice
			jobs = append(jobs, j)
		}
	}
	slices.SortFunc(jobs, func(a, b *job) int { return a.key.Compare(b.key) })
	c.run(jobs)
	for _, j := range jobs {
		c.put(tx, j)
	}
}

func hasNodes(changes cluster.Changes) bool {
	for ch := range changes.Objects {
		if ch.Kind == cluster.KindNode {
			return true
		}
	}
	return false
}

// job is the slices of one Service to be brought up to date.
type job struct {
	key  cluster.Key
	now  *cluster.Service // nil when it gets no slices of ours
	old  *made            // nil when there are none
	pods []PodChange      // all that changed, unless whole
	// whole says that all is to be looked at.
	whole bool
	// stored are its slices in the model, by name, until that is written to; intact
	// says that they are just those of old.
	stored []*cluster.EndpointSlice
	intact bool
	// at is the slice of the model at a key, or nil. It is asked only for new
	// names, as it takes long.
	at func(cluster.Key) *cluster.EndpointSlice

	// What comes of it: the slices by name, those of them that are new or differ,
	// these as the model has them, what was left out, and whether changes from now
	// on are plain.
	slices  []*discoveryv1.EndpointSlice
	written []*discoveryv1.EndpointSlice
	model   []*cluster.EndpointSlice
	refused refusals
	plain   *plainness
}

// job tells what is to be done for a Service that was touched, nil for nothing.
func (c *Compiler) job(v *cluster.View, key cluster.Key, t *Touched) *job {
	j := &job{key: key, now: v.Service(key), old: c.made[key], pods: t.Pods, whole: t.Whole, stored: v.SlicesOf(key)}
	j.intact = j.old != nil && slices.Equal(j.stored, j.old.model)
	if !HasSlices(j.now) || j.hasOthers() || !t.Whole && j.old == nil {
		j.now = nil
	}
	if j.now == nil && j.old == nil {
		return nil
	}
	return j
}

// hasOthers tells whether the Service has slices that are not ours.
func (j *job) hasOthers() bool {
	return !j.intact && slices.ContainsFunc(j.stored, func(s *cluster.EndpointSlice) bool { return !j.old.has(s) })
}

// existing are the slices from before that are still there: one is not when it
// was deleted, or when another was declared at its name.
func (j *job) existing() []*discoveryv1.EndpointSlice {
	if j.old == nil {
		return nil
	}
	if j.intact {
		return j.old.slices
	}
	return slices.DeleteFunc(slices.Clone(j.old.slices), func(s *discoveryv1.EndpointSlice) bool {
		i := place(j.stored, s.Name)
		return i == len(j.stored) || j.stored[i].Name != s.Name || !j.old.has(j.stored[i])
	})
}

// parallelFrom is how many Services are worth more than one goroutine.
const parallelFrom = 16

// run does the jobs, on all processors if they are many.
func (c *Compiler) run(jobs []*job) {
	if len(jobs) < parallelFrom {
		for _, j := range jobs {
			c.workers[0].do(j)
		}
		return
	}
	parallel.EachBy(len(c.workers), len(jobs), func(worker, i int) { c.workers[worker].do(jobs[i]) })
}

// put writes what came of a job.
func (c *Compiler) put(tx *cluster.Tx, j *job) {
	for _, key := range j.gone() {
		tx.Delete(cluster.KindEndpointSlice, key)
	}
	for _, m := range j.model {
		tx.Put(m)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if j.now == nil {
		c.nodes.forget(j.key)
		delete(c.made, j.key)
		return
	}
	c.made[j.key] = &made{
		service: j.now, slices: j.slices, refused: j.refused, plain: j.plain,
		model: slices.Clone(tx.SlicesOf(j.key)), // there are no others, and what is put as it was before stays that
	}
}

// gone are the slices of ours that are to be no more.
func (j *job) gone() (keys []cluster.Key) {
	names := make(map[string]bool, len(j.slices))
	for _, s := range j.slices {
		names[s.Name] = true
	}
	for _, s := range j.stored {
		if !names[s.Name] && j.old.has(s) {
			keys = append(keys, s.Key)
		}
	}
	return keys
}
