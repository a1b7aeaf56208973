// Package manifest reads a cluster from a directory of manifests, and watches
// it: a directory tree of YAML (any number of documents a file) and JSON, List
// kinds included.
//
// A broken document costs that document: its last good version stays. A
// namespace exists when it is declared or when an object lives in it. Legacy
// Endpoints are mirrored into EndpointSlices as Kubernetes' control plane does
// it (Services, load balancing and networking: "EndpointSlice mirroring"),
// unless the Service has slices of its own.
package manifest

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/support/parallel"
)

// Config is what a Source is made from.
type Config struct {
	// Path is a directory, or one file. "-" is Stdin, unless that is nil.
	Path string
	// Also are more of them, which are read as if they were in one directory.
	Also []string
	// Exclude leaves files and directories out, by their name or their path
	// below the directory that is read, as patterns of path/filepath.Match.
	Exclude []string
	Stdin   io.Reader
	// Whole reads workloads and NetworkPolicies, too, and remembers where all
	// objects stand, see Where. It is for looking at what people wrote: documents
	// that are no Kubernetes objects are passed over, and templates that can't be
	// read are a warning.
	Whole bool
	// ControlPlane, where it is given, adds to each transaction what a control
	// plane would make of it; workloads are read for it.
	ControlPlane ControlPlane
	Store        *cluster.Store
	Log          *slog.Logger
}

// ControlPlane makes of what is declared what a cluster would have.
type ControlPlane interface {
	// Complete adds to a transaction what follows from what it changed, and tells
	// which objects that are declared are refused at present: those don't count,
	// or count as they were before. It may know what it put by the pointers: what
	// is declared anew never leaves an equal one of it in its place.
	Complete(*cluster.Tx) []cluster.Refusal
}

func (c *Config) depth() depth {
	switch {
	case c.Whole:
		return forPeople
	case c.ControlPlane != nil:
		return forPods
	}
	return forNames
}

// Stdin is what the file is called that is read from standard input.
const Stdin = "<stdin>"

// Source reads manifests into a Store.
type Source struct {
	cfg      Config
	files    map[string]*file
	applied  map[identity]any   // what the Store holds; nil before it was looked at
	reported map[string]Problem // those that stand, by their text
	broken   map[string]error   // what can't be looked into, by path
	patched  []string           // see tree.kustomizations
	loaded   bool
	report   Report // of the last time that anything changed
	places   map[identity]entry
	stdin    []byte // once it was read
}

// file is a manifest as it was read last.
type file struct {
	info fs.FileInfo
	sum  [sha256.Size]byte
	// when it was read; a change in the same instant would not show in info
	read time.Time
	*decoded
	declared map[identity]entry
	lastGood map[identity]entry // of broken documents
	problems []Problem
}

// Report is what a look at the tree found.
type Report struct {
	// Problems stand at present, in order of file and line.
	Problems []Problem
	// New are those of them that the Report before did not have, Mended those
	// that it had and that stand no more.
	New, Mended []Problem
	// Objects counts those in the model, PassedOver documents of other kinds,
	// NotObjects those that are no Kubernetes objects and no problems, see Whole.
	Objects, PassedOver, NotObjects int
}

// New makes a Source. Nothing is read yet.
func New(cfg Config) *Source {
	return &Source{
		cfg:      cfg,
		files:    make(map[string]*file),
		reported: make(map[string]Problem),
	}
}

// Load reads what changed in the tree since the last time, and writes it to
// the Store in one transaction. It fails when the path itself can't be read;
// then everything stays as it was. All else that is wrong is in the Report.
func (s *Source) Load() (Report, error) {
	t, err := walk(&s.cfg)
	if err != nil {
		return Report{}, fmt.Errorf("manifests: %w", err)
	}
	return s.load(t), nil
}

// load brings s.files up to date, and the Store with them.
func (s *Source) load(t *tree) Report {
	changed := !s.loaded || len(t.broken)+len(s.broken) > 0
	if s.cfg.ControlPlane != nil && !slices.Equal(s.patched, t.kustomizations) {
		s.patched, changed = t.kustomizations, true
	}
	s.loaded, s.broken = true, t.broken
	for path := range s.files {
		if _, ok := t.files[path]; !ok && !t.isBroken(path) {
			delete(s.files, path)
			changed = true
		}
	}
	changed = s.rereadAll(t.files) || changed
	if changed {
		s.report = s.update()
	} else {
		s.report.New, s.report.Mended = nil, nil
	}
	return s.report
}

// sameInstant is how close to its last change a file may be read without
// knowing whether it changed again: time stamps are that coarse at most.
const sameInstant = time.Second

func (f *file) same(info fs.FileInfo) bool {
	return f.info != nil && os.SameFile(f.info, info) && f.info.Size() == info.Size() &&
		f.info.ModTime().Equal(info.ModTime()) && f.read.Sub(info.ModTime()) > sameInstant
}

// rereadAll decodes the files again that changed, on all processors, and tells
// whether anything is different.
func (s *Source) rereadAll(infos map[string]fs.FileInfo) (changed bool) {
	type reading struct {
		path    string
		file    *file
		changed bool
	}
	var readings []reading
	for path, info := range infos {
		if old := s.files[path]; old == nil || !old.same(info) {
			readings = append(readings, reading{path: path})
		}
	}
	parallel.Each(len(readings), func(i int) {
		r := &readings[i]
		r.file, r.changed = s.reread(r.path, infos[r.path], s.files[r.path])
	})
	for _, r := range readings {
		changed = changed || r.changed
		if s.files[r.path] = r.file; r.file == nil {
			delete(s.files, r.path)
		}
	}
	return changed
}

// reread decodes a file again, if its content is not old's, and tells whether
// anything is different; nil is a file that is gone.
func (s *Source) reread(path string, info fs.FileInfo, old *file) (f *file, changed bool) {
	if old == nil {
		old = &file{decoded: new(decoded)}
	}
	f = &file{info: info, read: time.Now(), sum: old.sum, decoded: old.decoded, declared: old.declared, lastGood: old.lastGood, problems: old.problems}
	data, err := s.read(path, info)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, true
	case err != nil:
		f.info, f.sum = nil, [sha256.Size]byte{} // try again
		f.problems = []Problem{{File: path, Line: 1, Err: err, Rejected: true}}
		return f, true
	}
	if f.sum = sha256.Sum256(data); f.sum == old.sum {
		return f, false
	}
	f.decode(path, data, old, s.cfg.depth())
	return f, true
}

// read reads a file; there is no info of Stdin, which can be read once only.
func (s *Source) read(path string, info fs.FileInfo) (data []byte, err error) {
	if info != nil {
		return readFile(path, info)
	}
	if s.stdin == nil {
		if s.stdin, err = io.ReadAll(io.LimitReader(s.cfg.Stdin, maxFile+1)); err == nil && len(s.stdin) > maxFile {
			err = errTooLong
		}
	}
	return s.stdin, err
}

// decode takes in a file's new content; old is what it was.
func (f *file) decode(path string, data []byte, old *file, depth depth) {
	f.decoded = decodeFile(path, data, old.chunks, depth)
	f.problems = f.decoded.problems
	f.declared = make(map[identity]entry, len(f.objects))
	f.lastGood = make(map[identity]entry)
	for _, o := range f.objects {
		if first, twice := f.declared[o.id]; twice {
			f.problems = append(f.problems, twiceProblem(o, first))
		}
		f.declared[o.id] = o
	}
	for _, objects := range []map[identity]entry{old.lastGood, old.declared} {
		for id, o := range objects {
			if _, again := f.declared[id]; !again && (f.unreadable || f.broken[id]) {
				f.lastGood[id] = o
			}
		}
	}
}

func twiceProblem(o, first entry) Problem {
	return Problem{File: o.file, Line: o.line, Object: o.id.String(),
		Err: fmt.Errorf("declared before, in %s:%d; this one counts", first.file, first.line)}
}

// kustomizationProblem warns of a directory that is not what it seems: a cluster
// would be made of what it is rendered to.
func kustomizationProblem(path string) Problem {
	return Problem{File: path, Line: 1, Err: fmt.Errorf(
		"its directory is a kustomization, and patches in it count here in the place of what they patch: render it (kubectl kustomize %s | portolan ... --manifests -)", filepath.Dir(path))}
}

// update writes the tree's objects to the Store.
func (s *Source) update() Report {
	var report Report
	objects := make(map[identity]entry, len(s.applied))
	paths := slices.Sorted(maps.Keys(s.files))
	for _, path := range paths {
		f := s.files[path]
		report.Problems = append(report.Problems, f.problems...)
		report.PassedOver += f.passedOver
		report.NotObjects += f.notObjects
		for id, o := range f.declared {
			if first, twice := objects[id]; twice {
				report.Problems = append(report.Problems, twiceProblem(o, first))
			}
			objects[id] = o
		}
	}
	// What is declared anywhere now counts, not what was.
	for _, path := range paths {
		for id, o := range s.files[path].lastGood {
			if _, declared := objects[id]; !declared {
				objects[id] = o
			}
		}
	}
	for path, err := range s.broken {
		report.Problems = append(report.Problems, Problem{File: path, Line: 1, Err: err, Rejected: true})
	}
	for _, path := range s.patched {
		report.Problems = append(report.Problems, kustomizationProblem(path))
	}
	if s.cfg.Whole {
		s.places = objects
	}
	if s.cfg.ControlPlane == nil { // which refuses the second
		report.Problems = append(report.Problems, sharedClusterIPs(objects)...)
	}
	values := s.modelValues(objects)
	for _, f := range s.files {
		for ns := range f.namespaces {
			implyNamespace(values, ns)
		}
	}
	for _, r := range s.write(values) {
		if o, declared := objects[identity{r.Kind.String(), r.Key}]; declared {
			report.Problems = append(report.Problems, o.refused(r))
		}
	}
	report.Objects = len(values)
	slices.SortStableFunc(report.Problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Error(), b.Error()))
	})
	report.New, report.Mended = s.compare(report.Problems)
	return report
}

// modelValues adds what objects imply: mirrored slices and namespaces.
func (s *Source) modelValues(objects map[identity]entry) map[identity]any {
	values := make(map[identity]any, len(objects))
	hasSlices := make(map[cluster.Key]bool)
	for id, o := range objects {
		if slice, ok := o.value.(*cluster.EndpointSlice); ok {
			hasSlices[cluster.Key{Namespace: slice.Namespace, Name: slice.Service}] = true
		}
		if _, ok := o.value.(*mirrored); !ok {
			values[id] = o.value
		}
	}
	for id := range objects {
		implyNamespace(values, id.key.Namespace)
	}
	for id, o := range objects {
		m, ok := o.value.(*mirrored)
		if !ok || hasSlices[id.key] || s.cfg.ControlPlane != nil && !mirroredFor(objects, id.key) {
			continue
		}
		for _, slice := range m.slices {
			id := identity{"EndpointSlice", slice.Key}
			if _, declared := objects[id]; !declared { // of another Service, by chance
				values[id] = slice
			}
		}
	}
	return values
}

// mirroredFor tells whether there is a Service whose Endpoints a control plane
// mirrors: it makes slices of its own for one with a selector.
func mirroredFor(objects map[identity]entry, service cluster.Key) bool {
	s, ok := objects[identity{"Service", service}].value.(*cluster.Service)
	return ok && len(s.Selector) == 0
}

// implyNamespace adds the Namespace that an object lives in, if it is not there.
func implyNamespace(values map[identity]any, name string) {
	id := identity{"Namespace", cluster.Key{Name: name}}
	if _, declared := values[id]; !declared && name != "" {
		values[id] = &cluster.Namespace{Name: name}
	}
}

// sharedClusterIPs warns of Services that have an address in common, which no
// API server gives out: both serve.
func sharedClusterIPs(objects map[identity]entry) (problems []Problem) {
	users := make(map[netip.Addr][]entry)
	for _, o := range objects {
		if service, ok := o.value.(*cluster.Service); ok {
			for _, addr := range service.ClusterIPs {
				users[addr] = append(users[addr], o)
			}
		}
	}
	for addr, sharing := range users {
		slices.SortFunc(sharing, func(a, b entry) int { return a.id.key.Compare(b.id.key) })
		first := sharing[0]
		for _, o := range sharing[1:] {
			problems = append(problems, Problem{File: o.file, Line: o.line, Object: o.id.String(),
				Err: fmt.Errorf("cluster IP %s is that of %s too, in %s:%d; its reverse name has both", addr, first.id, first.file, first.line)})
		}
	}
	return problems
}

// Where says in which file and line an object stands, or a field of it such as
// "spec.ports[0].name": the nearest one around it that is there. ok is false of
// an object that no manifest declares, and of all without Whole.
func (s *Source) Where(kind cluster.Kind, key cluster.Key, field string) (file string, line int, ok bool) {
	o, ok := s.places[identity{kind.String(), key}]
	if !ok {
		return "", 0, false
	}
	return o.file, o.lineOf(field), true
}

// Declared is an object as it was declared, as JSON; nil of one that no manifest
// declares, and of all without Whole.
func (s *Source) Declared(kind cluster.Kind, key cluster.Key) []byte {
	return s.places[identity{kind.String(), key}].json
}

// Annotations are the values of an annotation of an object and of its Pods'
// template, as far as they are there; none without Whole.
func (s *Source) Annotations(kind cluster.Kind, key cluster.Key, name string) (values []string) {
	o, ok := s.places[identity{kind.String(), key}]
	if !ok {
		return nil
	}
	return o.annotations(name)
}

// Near is where the first object of a namespace says that it is in it; of none,
// the first object at all; of none, the first file. Without Whole, and without
// files, it is nowhere.
func (s *Source) Near(namespace string) (file string, line int) {
	var first *entry
	rank := func(o *entry) int {
		if o.id.key.Namespace == namespace {
			return 0
		}
		return 1
	}
	for _, o := range s.places {
		if first == nil || cmp.Or(cmp.Compare(rank(&o), rank(first)), cmp.Compare(o.file, first.file), cmp.Compare(o.line, first.line)) < 0 {
			first = &o
		}
	}
	switch {
	case first != nil:
		return first.file, first.lineOf("metadata.namespace")
	case s.cfg.Whole && len(s.files) > 0:
		return slices.Min(slices.Collect(maps.Keys(s.files))), 1
	}
	return "", 0
}

// compare tells which problems were not reported before, and which that were
// do not stand any more.
func (s *Source) compare(problems []Problem) (fresh, mended []Problem) {
	standing := make(map[string]Problem, len(problems))
	for _, p := range problems {
		text := p.Error()
		_, known := s.reported[text]
		_, twice := standing[text]
		if !known && !twice {
			fresh = append(fresh, p)
		}
		standing[text] = p
	}
	for text, p := range s.reported {
		if _, stands := standing[text]; !stands {
			mended = append(mended, p)
		}
	}
	s.reported = standing
	return fresh, mended
}
