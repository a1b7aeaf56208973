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

// Config configures a Compiler.
type Config struct {
	// MaxEndpoints is the greatest number of endpoints in a slice, up to
	// MaxMaxEndpoints; 0 is DefaultMaxEndpoints.
	MaxEndpoints int
	// Log receives warnings about Pods that endpoints cannot represent; nil discards
	// them.
	Log *slog.Logger
}

// Validate reports a MaxEndpoints that is out of range.
func (c Config) Validate() error {
	if c.MaxEndpoints < 0 || c.MaxEndpoints > MaxMaxEndpoints {
		return fmt.Errorf("%d endpoints per slice: must be between 1 and %d", c.MaxEndpoints, MaxMaxEndpoints)
	}
	return nil
}

// Compiler adds to a model the slices of all its Services that have selectors. A
// Service with declared slices keeps those and gets no others.
type Compiler struct {
	cfg     Config
	index   *Index
	nodes   *Nodes
	workers []*worker
	started bool // whether the first Complete with all kinds loaded was made

	mu        sync.Mutex // guards generated
	generated map[cluster.Key]*generated
}

// generated is what the Compiler made for one Service.
type generated struct {
	slices []*discoveryv1.EndpointSlice // by name; immutable
	// model are the same slices as the model holds them. A slice in the model is
	// one of these if the pointers are equal: declared slices may have the same
	// names and labels.
	model      []*cluster.EndpointSlice
	exclusions exclusions
}

// contains reports whether s, a slice of the model, is one of these. The receiver
// may be nil.
func (g *generated) contains(s *cluster.EndpointSlice) bool {
	if g == nil {
		return false
	}
	i := position(g.model, s.Name)
	return i < len(g.model) && g.model[i] == s
}

// position returns the index at which the slice of that name is, or would be, in
// sorted.
func position(sorted []*cluster.EndpointSlice, name string) int {
	i, _ := slices.BinarySearchFunc(sorted, name, func(s *cluster.EndpointSlice, name string) int {
		return cmp.Compare(s.Name, name)
	})
	return i
}

// New returns a Compiler for a valid Config.
func New(cfg Config) *Compiler {
	cfg.MaxEndpoints = cmp.Or(cfg.MaxEndpoints, DefaultMaxEndpoints)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	c := &Compiler{
		cfg: cfg, index: NewIndex(), nodes: NewNodes(NodesDeclared), generated: make(map[cluster.Key]*generated),
	}
	for range runtime.GOMAXPROCS(0) {
		c.workers = append(c.workers, newWorker(c))
	}
	return c
}

// Slices returns the slices generated for a Service, sorted by name. The caller
// must not change them.
func (c *Compiler) Slices(service cluster.Key) []*discoveryv1.EndpointSlice {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g := c.generated[service]; g != nil {
		return slices.Clone(g.slices)
	}
	return nil
}

// Complete updates, in tx, the slices of all Services that the transaction
// affects. It does nothing until all kinds that slices depend on are loaded.
func (c *Compiler) Complete(tx *cluster.Tx) {
	if !tx.Loaded(cluster.KindService, cluster.KindPod, cluster.KindNode, cluster.KindEndpointSlice) {
		return
	}
	changes := tx.Changed()
	if !c.started {
		c.started = true
		changes.Everything = true
	}
	if changes.Everything || hasNodes(changes) {
		c.nodes.Set(tx.View)
	}
	affected := c.index.Update(tx.View, changes)
	jobs := make([]*job, 0, len(affected))
	for key := range affected {
		if j := c.job(tx.View, key); j != nil {
			j.sliceAt = tx.EndpointSlice
			jobs = append(jobs, j)
		}
	}
	slices.SortFunc(jobs, func(a, b *job) int { return a.key.Compare(b.key) })
	c.run(jobs)
	for _, j := range jobs {
		c.apply(tx, j)
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

// job updates the slices of one Service.
type job struct {
	key      cluster.Key
	service  *cluster.Service // nil if it gets no generated slices
	previous *generated       // nil if it had none
	// stored are the Service's slices in the model, by name, before the job's
	// result is applied. unchanged says that these are just the previous ones.
	stored    []*cluster.EndpointSlice
	unchanged bool
	// sliceAt returns the slice of the model at a key, or nil. It is called only for
	// new names, because the model has to search for it.
	sliceAt func(cluster.Key) *cluster.EndpointSlice

	// The result: all slices by name, those of them that are new or differ, these
	// as the model holds them, and what endpoints cannot represent.
	slices     []*discoveryv1.EndpointSlice
	written    []*discoveryv1.EndpointSlice
	model      []*cluster.EndpointSlice
	exclusions exclusions
}

// job returns the job for a Service, nil if there is nothing to do.
func (c *Compiler) job(v *cluster.View, key cluster.Key) *job {
	j := &job{key: key, service: v.Service(key), previous: c.generated[key], stored: v.SlicesOf(key)}
	j.unchanged = j.previous != nil && slices.Equal(j.stored, j.previous.model)
	if !HasSlices(j.service) || j.hasDeclared() {
		j.service = nil
	}
	if j.service == nil && j.previous == nil {
		return nil
	}
	return j
}

// hasDeclared reports whether the Service has slices that were not generated.
func (j *job) hasDeclared() bool {
	return !j.unchanged && slices.ContainsFunc(j.stored, func(s *cluster.EndpointSlice) bool {
		return !j.previous.contains(s)
	})
}

// existing returns the previous slices that are still in the model. A slice is no
// longer there if it was deleted or if another was declared at its name.
func (j *job) existing() []*discoveryv1.EndpointSlice {
	if j.previous == nil {
		return nil
	}
	if j.unchanged {
		return j.previous.slices
	}
	return slices.DeleteFunc(slices.Clone(j.previous.slices), func(s *discoveryv1.EndpointSlice) bool {
		i := position(j.stored, s.Name)
		return i == len(j.stored) || j.stored[i].Name != s.Name || !j.previous.contains(j.stored[i])
	})
}

// minParallelJobs is the number of jobs from which several goroutines pay off.
const minParallelJobs = 16

// run executes the jobs, on all processors if there are many.
func (c *Compiler) run(jobs []*job) {
	if len(jobs) < minParallelJobs {
		for _, j := range jobs {
			c.workers[0].do(j)
		}
		return
	}
	parallel.EachBy(len(c.workers), len(jobs), func(worker, i int) { c.workers[worker].do(jobs[i]) })
}

// apply writes the result of a job to the model.
func (c *Compiler) apply(tx *cluster.Tx, j *job) {
	for _, key := range j.removed() {
		tx.Delete(cluster.KindEndpointSlice, key)
	}
	for _, s := range j.model {
		tx.Put(s)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if j.service == nil {
		c.nodes.forget(j.key)
		delete(c.generated, j.key)
		return
	}
	c.generated[j.key] = &generated{
		slices: j.slices, exclusions: j.exclusions,
		// The Service has no other slices. A slice that was put but equals the one
		// in the model keeps the pointer of the latter.
		model: slices.Clone(tx.SlicesOf(j.key)),
	}
}

// removed returns the keys of previous slices that the Service has no more.
func (j *job) removed() (keys []cluster.Key) {
	names := make(map[string]bool, len(j.slices))
	for _, s := range j.slices {
		names[s.Name] = true
	}
	for _, s := range j.stored {
		if !names[s.Name] && j.previous.contains(s) {
			keys = append(keys, s.Key)
		}
	}
	return keys
}
