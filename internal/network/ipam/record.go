package ipam

import (
	"cmp"
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
	"time"

	"portolan.dev/portolan/internal/cni/attach"
	"portolan.dev/portolan/internal/support/replacefile"
	"portolan.dev/portolan/internal/support/statefile"
)

func compareIDs(a, b attach.ID) int {
	return cmp.Or(cmp.Compare(a.ContainerID, b.ContainerID), cmp.Compare(a.Interface, b.Interface))
}

// Record is an attachment and what has to be undone when it ends.
type Record struct {
	attach.ID
	// Network is the name of the network configuration.
	Network string `json:"network,omitempty"`
	// NetNS is the path of the Pod's network namespace on the host.
	NetNS string `json:"netns,omitempty"`
	// Namespace, Name and UID are those of the Pod, as the kubelet gave them to the runtime.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
	// Device is the host's end of the Pod's link.
	Device string `json:"device,omitempty"`
	// Data is what the caller needs beside to undo or restore the attachment, such as its hostPorts.
	Data json.RawMessage `json:"data,omitempty"`
	// Addresses are at most one of each family, IPv4 first. Assign sets them.
	Addresses []netip.Addr `json:"addresses"`
	// Created is when the attachment got its addresses. Assign sets it.
	Created time.Time `json:"created"`
}

// Pod returns the namespace and the name of the Pod.
func (r Record) Pod() string { return r.Namespace + "/" + r.Name }

func (r Record) clone() Record {
	r.Addresses, r.Data = slices.Clone(r.Addresses), slices.Clone(r.Data)
	return r
}

// entry is a record, or its tombstone after it was released, as it is stored.
type entry struct {
	Record
	Released time.Time `json:"released,omitzero"`

	ended bool // while no process had the directory open
}

// compare orders entries by when they were made.
func (e entry) compare(other entry) int {
	return cmp.Or(e.Released.Compare(other.Released), e.Created.Compare(other.Created), compareIDs(e.ID, other.ID))
}

// store keeps entries, one of each ID.
type store interface {
	// load returns all entries of this boot.
	load() ([]entry, error)
	write(e entry) error
	// remove removes an entry, if there is one.
	remove(id attach.ID) error
	// settle undoes attach.End for an entry that load has returned. So do write and remove.
	settle(id attach.ID) error
}

// recordFormat is the format of a file of the directory.
const recordFormat = statefile.Format("portolan addresses 1\n")

// contents are those of such a file.
type contents struct {
	Boot string `json:"boot"` // boot_id of random(4)
	entry
}

// directory is a store on disk.
type directory struct {
	path string
	boot string
	log  *slog.Logger
}

func (d *directory) file(id attach.ID) string {
	return filepath.Join(d.path, id.String()+attach.LinkSuffix)
}

func (d *directory) load() ([]entry, error) {
	if err := os.MkdirAll(d.path, 0o700); err != nil {
		return nil, err
	}
	replacefile.RemoveLeftovers(d.path, attach.LinkSuffix)
	files, err := os.ReadDir(d.path)
	if err != nil {
		return nil, err
	}
	var all []entry
	for _, file := range files {
		if name, ok := strings.CutSuffix(file.Name(), attach.LinkSuffix+attach.EndedSuffix); ok {
			e, ok, err := d.takeBack(filepath.Join(d.path, name+attach.LinkSuffix))
			if err != nil {
				d.log.Warn("the record of an attachment that has ended cannot be read", "err", err)
			} else if ok {
				all = append(all, e)
			}
			continue
		}
		if !strings.HasSuffix(file.Name(), attach.LinkSuffix) {
			continue
		}
		var e entry
		var ok bool
		err := d.check(file)
		if err == nil {
			e, ok, err = d.read(filepath.Join(d.path, file.Name()))
		}
		if err != nil {
			d.log.Warn("the record of a Pod's addresses cannot be read", "err", err)
		} else if ok {
			all = append(all, e)
		}
	}
	return all, nil
}

// maxRecord is how long a record is at most, in octets: that of a Pod with some thousand hostPorts.
const maxRecord = 1 << 20

// check returns an error for what is no record: to read it may take forever, or all memory.
func (d *directory) check(file fs.DirEntry) error {
	info, err := file.Info()
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is no file", filepath.Join(d.path, file.Name()))
	case info.Size() > maxRecord:
		return fmt.Errorf("%s has %d octets, and a record has %d at most",
			filepath.Join(d.path, file.Name()), info.Size(), maxRecord)
	}
	return nil
}

// takeBack gives the record of an attachment that has ended its name again, until everything of it is undone, unless
// there is a newer one.
func (d *directory) takeBack(path string) (e entry, ok bool, err error) {
	if _, err := os.Lstat(path); err == nil {
		return entry{}, false, os.Remove(path + attach.EndedSuffix)
	}
	if err := os.Rename(path+attach.EndedSuffix, path); err != nil {
		return entry{}, false, err
	}
	e, ok, err = d.read(path)
	e.ended = true
	return e, ok, err
}

// read returns the entry in a file, and removes one of another boot.
func (d *directory) read(path string) (e entry, ok bool, err error) {
	var stored contents
	err = recordFormat.Read(path, func(text []byte) error {
		if err := json.Unmarshal(text, &stored); err != nil {
			return err
		}
		if err := stored.Validate(); err != nil {
			return err
		}
		if d.file(stored.ID) != path {
			return fmt.Errorf("it is that of %s", stored.ID)
		}
		if slices.ContainsFunc(stored.Addresses, func(a netip.Addr) bool { return !a.IsValid() || a.Is4In6() }) {
			return fmt.Errorf("its addresses are %v", stored.Addresses)
		}
		return nil
	})
	if err == nil && stored.Boot != d.boot {
		return entry{}, false, os.Remove(path)
	}
	return stored.entry, err == nil, err
}

func (d *directory) settle(id attach.ID) error {
	path := d.file(id)
	if _, err := os.Lstat(path); err == nil {
		return removeFile(path + attach.EndedSuffix)
	}
	if err := os.Rename(path+attach.EndedSuffix, path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (d *directory) write(e entry) error {
	text, err := json.Marshal(contents{Boot: d.boot, entry: e})
	if err != nil {
		return err
	}
	path := d.file(e.ID)
	if err := recordFormat.WriteMember(path, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	}); err != nil {
		return err
	}
	return removeFile(path + attach.EndedSuffix)
}

func (d *directory) remove(id attach.ID) error {
	path := d.file(id)
	if err := removeFile(path + attach.EndedSuffix); err != nil {
		return err
	}
	return removeFile(path)
}

// removeFile removes a file, if there is one.
func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
