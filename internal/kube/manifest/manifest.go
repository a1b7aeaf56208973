// Package manifest reads a cluster from a directory tree of manifests and
// follows its changes: YAML with any number of documents per file, and JSON,
// List kinds included.
//
//	walk ──► decode changed files ──► index ──► one transaction ──► cluster.Store
//	(tree)   (documents by hash)      (objects)      └── ControlPlane.Complete
//
// The work for a change is proportional to the files that changed, not to the
// tree. A broken document affects that document only: its last good version
// stays, or what can be read of it is used if its kind fails closed (object.Kind).
// A Namespace exists when it is declared or when an object lives in it.
// Legacy Endpoints are mirrored into EndpointSlices as the Kubernetes control
// plane does ("EndpointSlices", "EndpointSlice mirroring"), unless the Service
// has slices of its own.
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
	"os"
	"path/filepath"
	"slices"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/support/parallel"
)

// Config configures a Source.
type Config struct {
	// Path is a directory, or one file. "-" is Stdin, unless that is nil.
	Path string
	// Also lists further paths, which are read as if they were in one directory.
	Also []string
	// Exclude leaves out files and directories by their name or by their path
	// below the directory that is read, as patterns of path/filepath.Match.
	Exclude []string
	Stdin   io.Reader
	// Whole reads every kind of the model, and remembers where each object is
	// declared, see Where. It is for looking at what people wrote: documents that
	// are not Kubernetes objects are skipped, and templates that can't be read are
	// a warning.
	Whole bool
	// AllKinds reads every kind of the model, without the places.
	AllKinds bool
	// ControlPlane, unless nil, completes each transaction as a Kubernetes control
	// plane would; every kind is read for it.
	ControlPlane ControlPlane
	Store        *cluster.Store
	Log          *slog.Logger
}

// ControlPlane completes what manifests declare.
type ControlPlane interface {
	// Complete adds to a transaction what follows from its changes, and returns
	// the declared objects that are rejected at present: those are left out, or
	// stay as they were before. It may recognize its own objects by pointer: the
	// Source never puts an equal object in the place of one that the ControlPlane
	// put, but deletes that one first.
	Complete(*cluster.Tx) []cluster.Refusal
}

func (c *Config) depth() depth {
	switch {
	case c.Whole:
		return allWithPlaces
	case c.AllKinds, c.ControlPlane != nil:
		return allKinds
	}
	return kindsOfNames
}

// Stdin is the name of the file that is read from standard input.
const Stdin = "<stdin>"

// Source reads manifests into a Store. Its methods must not be called
// concurrently.
type Source struct {
	cfg      Config
	files    map[string]*file
	index    *index
	reported map[string]Problem // that stand, by their text
	broken   map[string]error   // paths that can't be read
	patched  []string           // see tree.kustomizations
	loaded   bool
	report   Report // of the last change
	stdin    []byte // once it was read
}

// file is a manifest as it was last read.
type file struct {
	path string
	info fs.FileInfo
	sum  [sha256.Size]byte
	// read is when it was read; a change in the same instant would not show in
	// info.
	read time.Time
	*decoded
	declared map[identity]entry
	lastGood map[identity]entry // of broken documents
	problems []Problem
}

// identities yields what the file declares, or declared before it broke.
func (f *file) identities(yield func(identity) bool) {
	for id := range f.declared {
		if !yield(id) {
			return
		}
	}
	for id := range f.lastGood {
		if !yield(id) {
			return
		}
	}
}

// entry returns the object of that identity, as it is declared or was last.
func (f *file) entry(id identity) entry {
	if e, ok := f.declared[id]; ok {
		return e
	}
	return f.lastGood[id]
}

// Report is the outcome of reading the tree.
type Report struct {
	// Problems are those that stand, in order of file and line.
	Problems []Problem
	// New are the Problems that the previous Report did not have, Mended those that
	// it had and that no longer stand.
	New, Mended []Problem
	// Objects counts the objects in the model, PassedOver the documents of kinds that
	// are not read, NotObjects those that are not Kubernetes objects and that are
	// no problem, see Config.Whole.
	Objects, PassedOver, NotObjects int
}

// New returns a Source. It reads nothing yet.
func New(cfg Config) *Source {
	return &Source{
		cfg:      cfg,
		files:    make(map[string]*file),
		index:    newIndex(),
		reported: make(map[string]Problem),
	}
}

// Load reads what changed in the tree since the last call, and writes it to the
// Store in one transaction. It fails when the path itself can't be read; then
// nothing changes. All other problems are in the Report.
func (s *Source) Load() (Report, error) {
	t, err := walk(&s.cfg)
	if err != nil {
		return Report{}, fmt.Errorf("manifests: %w", err)
	}
	return s.load(t), nil
}

// load brings the files up to date with the tree, and the Store with them.
func (s *Source) load(t *tree) Report {
	var changed []fileChange
	for path, f := range s.files {
		if _, ok := t.files[path]; !ok && !t.isBroken(path) {
			delete(s.files, path)
			changed = append(changed, fileChange{old: f})
		}
	}
	changed = append(changed, s.rereadAll(t.files)...)
	same := s.loaded && len(changed) == 0 && len(t.broken)+len(s.broken) == 0
	if s.cfg.ControlPlane != nil && !slices.Equal(s.patched, t.kustomizations) {
		s.patched, same = t.kustomizations, false
	}
	s.broken = t.broken
	if same {
		s.report.New, s.report.Mended = nil, nil
	} else {
		s.report = s.update(changed)
	}
	s.loaded = true
	return s.report
}

// sameInstant is how soon after its last change a file must be read again even
// if its time stamp is the same: time stamps are that coarse at most.
const sameInstant = time.Second

func (f *file) same(info fs.FileInfo) bool {
	return f.info != nil && os.SameFile(f.info, info) && f.info.Size() == info.Size() &&
		f.info.ModTime().Equal(info.ModTime()) && f.read.Sub(info.ModTime()) > sameInstant
}

// rereadAll decodes the files that changed, on all processors, and returns them.
func (s *Source) rereadAll(infos map[string]fs.FileInfo) (changed []fileChange) {
	type reading struct {
		path string
		fileChange
		same bool
	}
	var readings []reading
	for path, info := range infos {
		if old := s.files[path]; old == nil || !old.same(info) {
			readings = append(readings, reading{path: path, fileChange: fileChange{old: old}})
		}
	}
	parallel.Each(len(readings), func(i int) {
		r := &readings[i]
		r.now, r.same = s.reread(r.path, infos[r.path], r.old)
	})
	for _, r := range readings {
		switch {
		case r.same:
			r.old.info, r.old.read = r.now.info, r.now.read
			continue
		case r.now == nil:
			delete(s.files, r.path)
		default:
			s.files[r.path] = r.now
		}
		changed = append(changed, r.fileChange)
	}
	return changed
}

// reread decodes a file again, unless its content is the same as old's. It
// returns nil for a file that no longer exists.
func (s *Source) reread(path string, info fs.FileInfo, old *file) (f *file, same bool) {
	known := old != nil
	if !known {
		old = &file{decoded: new(decoded)}
	}
	f = &file{
		path: path, info: info, read: time.Now(),
		sum: old.sum, decoded: old.decoded, declared: old.declared, lastGood: old.lastGood, problems: old.problems,
	}
	data, err := s.read(path, info)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, false
	case err != nil:
		f.info, f.sum = nil, [sha256.Size]byte{} // try again
		f.problems = []Problem{{File: path, Line: 1, Err: err, Rejected: true}}
		return f, false
	}
	if f.sum = sha256.Sum256(data); known && f.sum == old.sum {
		return f, true
	}
	f.decode(path, data, old, s.cfg.depth())
	return f, false
}

// read reads a file. Stdin, which can be read only once, has no info.
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

// decode sets the file's contents from data; old is the file before.
func (f *file) decode(path string, data []byte, old *file, depth depth) {
	f.decoded = decodeFile(path, data, old.chunks, depth)
	f.problems = f.decoded.problems
	f.declared = make(map[identity]entry, len(f.objects))
	f.lastGood = make(map[identity]entry)
	for i, o := range f.objects {
		if model, ok := o.value.(cluster.Object); ok && depth >= allKinds {
			o.value = cluster.DeclaredAt(model, path, i)
		}
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
	for id, o := range f.closed {
		_, again := f.declared[id]
		if _, good := f.lastGood[id]; !again && !good {
			f.lastGood[id] = o
		}
	}
}

// kustomizationProblem warns that a directory must be rendered first: a cluster
// would be given what kustomize makes of it.
func kustomizationProblem(path string) Problem {
	err := fmt.Errorf("its directory is a kustomization, and patches in it count here in the place of what they patch: "+
		"render it (kubectl kustomize %s | portolan ... --manifests -)", filepath.Dir(path))
	return Problem{File: path, Line: 1, Err: err}
}

// update writes what changed to the Store, and reports how the tree is.
func (s *Source) update(changed []fileChange) Report {
	s.index.simulated = s.cfg.ControlPlane != nil
	refused := s.write(s.index.update(changed))
	report := Report{Objects: s.index.len(), Problems: s.index.problems()}
	for _, f := range s.files {
		report.Problems = append(report.Problems, f.problems...)
		report.PassedOver += f.passedOver
		report.NotObjects += f.notObjects
	}
	for path, err := range s.broken {
		report.Problems = append(report.Problems, Problem{File: path, Line: 1, Err: err, Rejected: true})
	}
	for _, path := range s.patched {
		report.Problems = append(report.Problems, kustomizationProblem(path))
	}
	for _, r := range refused {
		if e, declared := s.index.entry(identity{r.Kind.String(), r.Key}); declared {
			report.Problems = append(report.Problems, e.refused(r))
		}
	}
	slices.SortStableFunc(report.Problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Error(), b.Error()))
	})
	report.New, report.Mended = s.compare(report.Problems)
	return report
}

// place returns where an object is declared; ok is false for one that no manifest
// declares, and without Whole.
func (s *Source) place(kind cluster.Kind, key cluster.Key) (e entry, ok bool) {
	if !s.cfg.Whole {
		return entry{}, false
	}
	return s.index.entry(identity{kind.String(), key})
}

// Where returns the file and line of an object, or of a field of it such as
// "spec.ports[0].name": the nearest enclosing one that is present. ok is false
// for an object that no manifest declares, and without Whole.
func (s *Source) Where(kind cluster.Kind, key cluster.Key, field string) (file string, line int, ok bool) {
	e, ok := s.place(kind, key)
	if !ok {
		return "", 0, false
	}
	return e.file, e.lineOf(field), true
}

// Declared returns an object as it is declared, as JSON; nil for one that no
// manifest declares, and without Whole.
func (s *Source) Declared(kind cluster.Kind, key cluster.Key) []byte {
	e, _ := s.place(kind, key)
	return e.json
}

// Annotations returns the values of an annotation of an object and of its Pod
// template, as far as they are present; none without Whole.
func (s *Source) Annotations(kind cluster.Kind, key cluster.Key, name string) (values []string) {
	e, ok := s.place(kind, key)
	if !ok {
		return nil
	}
	return e.annotations(name)
}

// Near returns where the first object of a Namespace declares that it is in it.
// If there is none, it returns the place of the first object, or else of the
// first file. Without Whole, and without files, it returns an empty name.
func (s *Source) Near(namespace string) (file string, line int) {
	if !s.cfg.Whole {
		return "", 0
	}
	var first *entry
	rank := func(e *entry) int {
		if e.id.key.Namespace == namespace {
			return 0
		}
		return 1
	}
	for id, o := range s.index.objects {
		e := o.file.entry(id)
		if first == nil || cmp.Or(
			cmp.Compare(rank(&e), rank(first)),
			cmp.Compare(e.file, first.file),
			cmp.Compare(e.line, first.line),
		) < 0 {
			first = &e
		}
	}
	switch {
	case first != nil:
		return first.file, first.lineOf("metadata.namespace")
	case len(s.files) > 0:
		return slices.Min(slices.Collect(maps.Keys(s.files))), 1
	}
	return "", 0
}

// compare returns the problems that were not reported before, and those that
// were and no longer stand.
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
