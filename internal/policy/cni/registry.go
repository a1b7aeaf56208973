package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"portolan.dev/portolan/internal/cni/attach"
	"portolan.dev/portolan/internal/support/statefile"
)

// recordFormat is the format of the file of an attachment.
const recordFormat = statefile.Format("portolan attachment 1\n")

// record is the contents of such a file.
type record struct {
	Boot string `json:"boot"` // boot_id of random(4)
	Attachment
}

// releaseTime is how long a Gate may take for the end of attachments: less than a network takes to undo one, and than
// the plugin waits, which would take the agent for gone.
const releaseTime = 3 * time.Second

// Registry is the attachments of a node. Its methods are safe for concurrent use.
type Registry struct {
	dir  string
	boot string
	gate Gate
	log  *slog.Logger

	mu          sync.Mutex
	attachments map[attach.ID]*entry
}

// entry is an attachment. Its lock orders the calls of the Gate for it.
type entry struct {
	Attachment
	mu    sync.Mutex
	ended bool // guarded by mu
}

// OpenRegistry returns a Registry with the attachments that a process before recorded in a directory of the
// same boot, which it makes if there is none. It does not call the Gate. Files that it cannot read are set
// aside and logged.
func OpenRegistry(dir string, gate Gate, log *slog.Logger) (*Registry, error) {
	r := &Registry{dir: dir, gate: gate, log: log, attachments: make(map[attach.ID]*entry)}
	var err error
	if r.boot, err = statefile.Boot(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("attachments: %w", err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("attachments: %w", err)
	}
	for _, file := range files {
		id, ok := attach.ParseID(file.Name())
		if !ok {
			continue
		}
		a, err := r.read(id)
		switch {
		case err != nil:
			log.Warn("a Pod's attachment cannot be read", "err", err)
		case a != nil:
			r.attachments[id] = &entry{Attachment: *a}
		}
	}
	return r, nil
}

// read returns a recorded attachment, nil if it is of another boot.
func (r *Registry) read(id attach.ID) (*Attachment, error) {
	var stored record
	err := recordFormat.Read(r.path(id), func(contents []byte) error {
		if err := json.Unmarshal(contents, &stored); err != nil {
			return err
		}
		if stored.ID != id {
			return fmt.Errorf("it is that of %s", stored.ID)
		}
		return stored.check()
	})
	switch {
	case errors.Is(err, fs.ErrNotExist): // the plugin removed it just now
		return nil, nil
	case err != nil:
		return nil, err
	case stored.Boot != r.boot:
		return nil, os.Remove(r.path(id))
	}
	return &stored.Attachment, nil
}

func (r *Registry) path(id attach.ID) string { return filepath.Join(r.dir, id.String()) }

// All returns the attachments, in order of their IDs.
func (r *Registry) All() []Attachment {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]Attachment, 0, len(r.attachments))
	for _, e := range r.attachments {
		all = append(all, e.Attachment)
	}
	slices.SortFunc(all, func(a, b Attachment) int { return strings.Compare(a.String(), b.String()) })
	return all
}

// Admit records an attachment and returns nil when the Gate has admitted it. An attachment that had one of
// its addresses has ended, since an address is one Pod's; Admit releases it before.
func (r *Registry) Admit(ctx context.Context, a Attachment) error {
	if err := a.check(); err != nil {
		return err
	}
	e := &entry{Attachment: a}
	e.mu.Lock()
	defer e.mu.Unlock()
	before := r.insert(e)
	if err := r.end(ctx, before...); err != nil {
		r.log.Warn("an attachment that has ended is not released", "successor", a.Pod(), "err", err)
	}
	err := r.save(a)
	if err == nil {
		err = r.gate.Admit(ctx, a)
	}
	if err == nil {
		return nil
	}
	r.mu.Lock()
	r.forget(e)
	r.mu.Unlock()
	if err := r.release(ctx, e); err != nil {
		r.log.Warn("an attachment that was not admitted is not released", "pod", a.Pod(), "err", err)
	}
	return err
}

// insert inserts an entry, and removes and returns those that it replaces: of the same ID, or with one of its
// addresses.
func (r *Registry) insert(e *entry) (before []*entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, other := range r.attachments {
		if id == e.ID || slices.ContainsFunc(other.Addresses, func(addr netip.Addr) bool {
			return slices.Contains(e.Addresses, addr)
		}) {
			before = append(before, other)
			delete(r.attachments, id)
		}
	}
	r.attachments[e.ID] = e
	return before
}

// forget removes an entry, if it has not been replaced.
func (r *Registry) forget(e *entry) {
	if r.attachments[e.ID] == e {
		delete(r.attachments, e.ID)
	}
}

// end waits for calls of the Gate for entries, and releases them together.
func (r *Registry) end(ctx context.Context, all ...*entry) error {
	for _, e := range all {
		e.mu.Lock()
		defer e.mu.Unlock()
	}
	return r.release(ctx, all...)
}

// release removes the records of entries that are no longer in the map, and tells the Gate once, although ctx may
// be done. The caller has the entries' locks.
func (r *Registry) release(ctx context.Context, all ...*entry) error {
	var ended []Attachment
	r.mu.Lock()
	for _, e := range all {
		if e.ended {
			continue
		}
		e.ended = true
		ended = append(ended, e.Attachment)
		if r.attachments[e.ID] != nil {
			continue // the record of an attachment that replaces this one stays
		}
		if err := os.Remove(r.path(e.ID)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			r.log.Warn("the record of an attachment stays", "err", err)
		}
	}
	r.mu.Unlock()
	if len(ended) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
	defer cancel()
	return r.gate.Release(ctx, ended)
}

func (r *Registry) save(a Attachment) error {
	text, err := json.Marshal(record{Boot: r.boot, Attachment: a})
	if err != nil {
		return err
	}
	err = recordFormat.WriteVolatile(r.path(a.ID), func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
	if err != nil {
		return fmt.Errorf("record the attachment: %w", err)
	}
	return nil
}

// Release releases an attachment; one that is unknown has ended before. It returns the error of the Gate, which
// is not told of the attachment again.
func (r *Registry) Release(ctx context.Context, id attach.ID) error {
	if err := id.Validate(); err != nil {
		return err
	}
	r.mu.Lock()
	e := r.attachments[id]
	delete(r.attachments, id)
	r.mu.Unlock()
	if e == nil {
		return nil
	}
	return r.end(ctx, e)
}

// Check returns nil if the attachment was admitted, with these addresses, and the Gate has it in the kernel.
func (r *Registry) Check(ctx context.Context, a Attachment) error {
	r.mu.Lock()
	e := r.attachments[a.ID]
	r.mu.Unlock()
	switch {
	case e == nil:
		return ErrUnknown
	case !slices.Equal(e.Addresses, a.Addresses):
		return fmt.Errorf("it was admitted with the addresses %v, and has %v", e.Addresses, a.Addresses)
	}
	return r.gate.Check(ctx, e.Attachment)
}

// Collect releases the attachments of a network that are not in valid, together. It returns the error of the Gate.
func (r *Registry) Collect(ctx context.Context, network string, valid []attach.ID) error {
	r.mu.Lock()
	var ended []*entry
	for id, e := range r.attachments {
		if e.Network == network && !slices.Contains(valid, id) {
			ended = append(ended, e)
			delete(r.attachments, id)
		}
	}
	r.mu.Unlock()
	for _, e := range ended {
		r.log.Info("a Pod has ended without being released", "pod", e.Pod(), "addresses", e.Addresses)
	}
	return r.end(ctx, ended...)
}
