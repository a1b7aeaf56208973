package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"portolan.dev/portolan/build/man"
	"portolan.dev/portolan/internal/cli"
)

// entry is a file in an archive.
type entry struct {
	name string
	mode int64
	data []byte
	pax  map[string]string // extended attributes, as PAX records
}

// tarBytes makes an archive in which nothing depends on when or by whom it was
// made: the owner is root, every time is t, and entries stay in their order.
func tarBytes(entries []entry, t time.Time) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{
			Typeflag: tar.TypeReg, Name: e.name, Mode: e.mode, Size: int64(len(e.data)), ModTime: t, PAXRecords: e.pax,
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("%s: %w", e.name, err)
		}
		if _, err := w.Write(e.data); err != nil {
			return nil, fmt.Errorf("%s: %w", e.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// gzipBytes compresses data; the header has neither a name nor a time.
func gzipBytes(data []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// writeTarGz writes a compressed archive.
func writeTarGz(file string, entries []entry, t time.Time) error {
	data, err := tarBytes(entries, t)
	if err != nil {
		return err
	}
	if data, err = gzipBytes(data); err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o644)
}

// manualPages returns the manual pages of the commands, in the directory that man(1) reads.
func manualPages(r release) (pages []entry) {
	texts := man.Book{Version: r.version, Time: r.time}.Pages(cli.Command())
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		pages = append(pages, entry{name: "man/man1/" + name, mode: 0o644, data: []byte(texts[name])})
	}
	return pages
}

// writeProgramArchive writes what users of one platform download: the program, its license and manual pages.
func writeProgramArchive(s settings, b program, pages []entry) error {
	name := b.release.fileName(b.platform.String())
	dir := name + "/"
	entries := []entry{{name: dir + b.platform.executable(), mode: 0o755, data: b.data}}
	for _, file := range []string{"LICENSE", "README.md"} {
		data, err := os.ReadFile(filepath.Join(s.repository, file))
		if err != nil {
			return err
		}
		entries = append(entries, entry{name: dir + file, mode: 0o644, data: data})
	}
	for _, page := range pages {
		page.name = dir + page.name
		entries = append(entries, page)
	}
	return writeTarGz(filepath.Join(s.out, name+".tar.gz"), entries, b.release.time)
}

// sumsFile has the sums of all other files, as sha256sum(1) prints and checks
// them.
const sumsFile = "SHA256SUMS"

func writeSums(dir string) error {
	files, err := os.ReadDir(dir) // sorted
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(data), f.Name())
	}
	if b.Len() == 0 {
		return errors.New("no files")
	}
	return os.WriteFile(filepath.Join(dir, sumsFile), []byte(b.String()), 0o644)
}
