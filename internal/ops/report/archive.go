// Package report writes the archive of a bug report: bounded in size, without secrets, and with an index that says what
// each file is, and what could not be read and why.
//
//	File.Collect ──► buffer, bounded ──► Cleaner ──► tar, gzip
//	                                        ▲
//	               secrets that are known, patterns of those that are not
package report

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"
)

// IndexName is the name of the index, the last file of an archive.
const IndexName = "INDEX"

// Config configures an Archive.
type Config struct {
	// Out receives the archive, in gzip's format.
	Out io.Writer
	// Directory is where the archive's files are.
	Directory string
	// Time is that of the files.
	Time time.Time
	// Clean removes secrets from each file.
	Clean *Cleaner
	// FileSize limits each file, and Size all of them together, in octets before they are compressed.
	FileSize, Size int
	// Patience is how long a file may take.
	Patience time.Duration
}

// File is one of an archive.
type File struct {
	// Name is its path in the archive. It is cleaned as texts are, once: the archive and its index have the
	// same name.
	Name string
	// About is a sentence for the index.
	About string
	// Code is set if its words with dots are of a program, not domain names.
	Code bool
	// Learn is given the content before names are masked in it; nil if there is nothing to learn.
	Learn func(content []byte)
	// Collect writes its content. If it fails, what it wrote is kept, and the index has the error.
	Collect func(context.Context, io.Writer) error
}

// Archive is being written.
type Archive struct {
	cfg     Config
	packed  *gzip.Writer
	tar     *tar.Writer
	left    int
	entries []entry
	missing []entry
}

// entry is a line of the index. The name of a file that the archive has is cleaned; the rest is not yet.
type entry struct{ name, about, note string }

// New returns an empty Archive.
func New(cfg Config) *Archive {
	cfg.Time = cfg.Time.Truncate(time.Second) // tar rounds it, and programs warn of files of the next second
	a := &Archive{cfg: cfg, packed: gzip.NewWriter(cfg.Out), left: cfg.Size}
	a.tar = tar.NewWriter(a.packed)
	return a
}

// Add collects a file. Its error is one of writing the archive.
func (a *Archive) Add(ctx context.Context, f File) error {
	limit := min(a.cfg.FileSize, a.left)
	if limit <= 0 {
		a.Miss(f.Name, "the archive has its largest size")
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Patience)
	defer cancel()
	content := bounded{limit: limit + overlap}
	began := time.Now()
	err := f.Collect(ctx, &content)
	took := time.Since(began)
	if content.full {
		err = nil // whatever came of a writer that takes no more
	}
	text := a.clean(f, &content.buf)
	if content.buf.Len() == 0 {
		a.Miss(f.Name, cmp.Or(errorText(err), "it is empty"))
		return nil
	}
	var notes []string
	text, cut := lines(text, limit)
	if content.full || cut {
		notes = append(notes, fmt.Sprintf("cut after %d octets", limit))
	}
	if err != nil {
		notes = append(notes, "incomplete: "+err.Error())
	}
	if took >= slow {
		notes = append(notes, fmt.Sprintf("it took %s", took.Round(time.Second)))
	}
	a.left -= len(text)
	name := a.cfg.Clean.Clean(f.Name)
	a.entries = append(a.entries, entry{name, f.About, strings.Join(notes, "; ")})
	return a.write(name, text)
}

// clean returns the content of a file without secrets.
func (a *Archive) clean(f File, content *bytes.Buffer) string {
	if f.Learn != nil {
		f.Learn(content.Bytes())
	}
	if f.Code {
		return a.cfg.Clean.CleanCode(content.String())
	}
	return a.cfg.Clean.Clean(content.String())
}

// lines returns a text that ends with a line break, and reports whether it was cut to the limit, in octets.
func lines(text string, limit int) (ended string, cut bool) {
	const end = "\n"
	if !strings.HasSuffix(text, end) {
		text += end
	}
	if len(text) <= limit {
		return text, false
	}
	return strings.ToValidUTF8(text[:limit-len(end)], "") + end, true
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Miss notes in the index that something is not in the archive.
func (a *Archive) Miss(name, why string) { a.missing = append(a.missing, entry{name: name, note: why}) }

// Missing returns what is not in the archive, and why.
func (a *Archive) Missing() (all []string) {
	for _, m := range a.missing {
		all = append(all, a.cfg.Clean.Clean(m.name+": "+oneLine(m.note)))
	}
	return all
}

func (a *Archive) write(name, text string) error {
	const mode = 0o600
	h := &tar.Header{
		Typeflag: tar.TypeReg, Name: path.Join(a.cfg.Directory, name), Mode: mode, Size: int64(len(text)),
		ModTime: a.cfg.Time,
	}
	err := a.tar.WriteHeader(h)
	if err == nil {
		_, err = io.WriteString(a.tar, text)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// Close writes the index and ends the archive. Its error is one of writing the archive.
func (a *Archive) Close() error {
	return errors.Join(a.write(IndexName, a.index()), a.tar.Close(), a.packed.Close())
}

// index returns the text of the index. Names of files are not cleaned again: what Cleaner has learnt since
// would make them differ from those in the archive.
func (a *Archive) index() string {
	clean := a.cfg.Clean.Clean
	var b strings.Builder
	b.WriteString("What this archive has:\n")
	for _, e := range a.entries {
		text := e.about
		if e.note != "" {
			text += " (" + oneLine(e.note) + ")"
		}
		b.WriteString("  " + e.name + ": " + clean(text) + "\n")
	}
	if len(a.missing) > 0 {
		b.WriteString("\nWhat it does not have, and why:\n")
	}
	for _, e := range a.missing {
		b.WriteString("  " + clean(e.name+": "+oneLine(e.note)) + "\n")
	}
	b.WriteString(
		"\nRemoved: data of Secrets, tokens, passwords and their hashes, private keys, cookies, header fields with\n" +
			"credentials, query strings of URLs. Environments of Pods were not read. ",
	)
	b.WriteString(a.cfg.Clean.Masked() + "\n")
	return b.String()
}

// oneLine returns a text without line breaks.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// slow is how long a file takes of which the index says so.
const slow = 2 * time.Second

// overlap is how much more is read of a file than is kept: a secret at the cut is then complete, and found.
const overlap = 64 << 10

// errFull ends writing to a bounded buffer.
var errFull = errors.New("the file has its largest size")

// bounded is a buffer that takes a number of octets.
type bounded struct {
	buf   bytes.Buffer
	limit int
	full  bool
}

func (b *bounded) Write(p []byte) (int, error) {
	n := min(len(p), b.limit-b.buf.Len())
	b.buf.Write(p[:n])
	if n < len(p) {
		b.full = true
		return n, errFull
	}
	return n, nil
}
