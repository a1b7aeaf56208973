package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestKrewManifest checks the manifest by the rules of krew (krew.sigs.k8s.io, "Writing Krew plugin manifests" and
// "Plugin naming guide"), and that it installs what the archives have.
func TestKrewManifest(t *testing.T) {
	t.Parallel()
	s := settings{
		repository: "../../..", out: t.TempDir(), downloads: "https://downloads.example/portolan",
		homepage: "https://portolan.example",
	}
	for _, b := range example() {
		if err := writeProgramArchive(s, b, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := writeKrew(s, example()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(s.out, krewFile))
	if err != nil {
		t.Fatal(err)
	}
	var m krewPlugin
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&m); err != nil {
		t.Fatal(err)
	}
	const longest = 50 // characters of a short description
	for claim, holds := range map[string]bool{
		"API version":         m.APIVersion == "krew.googlecontainertools.github.com/v1alpha2" && m.Kind == "Plugin",
		"name":                regexp.MustCompile(`^[\w-]+$`).MatchString(m.Metadata.Name) && m.Metadata.Name+".yaml" == krewFile,
		"version":             regexp.MustCompile(`^v\d+\.\d+\.\d+`).MatchString(m.Spec.Version),
		"homepage":            strings.HasPrefix(m.Spec.Homepage, "https://"),
		"short description":   len(m.Spec.ShortDescription) <= longest && !strings.ContainsAny(m.Spec.ShortDescription, "\r\n."),
		"without kubectl":     !strings.Contains(strings.ToLower(m.Spec.ShortDescription), "kubectl"),
		"all platforms":       len(m.Spec.Platforms) == len(platforms),
		"description and end": m.Spec.Description != "" && strings.HasSuffix(m.Spec.Description, "\n"),
	} {
		if !holds {
			t.Errorf("%s: not as krew demands it:\n%s", claim, text)
		}
	}
	for _, p := range m.Spec.Platforms {
		archive, err := os.ReadFile(filepath.Join(s.out, path.Base(p.URI)))
		if err != nil {
			t.Fatal(err)
		}
		if sum := fmt.Sprintf("%x", sha256.Sum256(archive)); p.SHA256 != sum {
			t.Errorf("%s: sum %s, want %s", p.URI, p.SHA256, sum)
		}
		names := entriesOf(t, archive)
		installed := false
		for _, f := range p.Files {
			installed = installed || path.Base(f.From) == p.Bin && f.To == "."
			if !slices.Contains(names, f.From) {
				t.Errorf("%s has no %s, but %v", p.URI, f.From, names)
			}
		}
		os, arch := p.Selector.MatchLabels["os"], p.Selector.MatchLabels["arch"]
		if !installed || !strings.Contains(p.URI, "/v0.1.0/") || !strings.HasSuffix(p.URI, "_"+os+"_"+arch+".tar.gz") {
			t.Errorf("platform %s/%s: %+v", os, arch, p)
		}
		if (os == "windows") != strings.HasSuffix(p.Bin, ".exe") {
			t.Errorf("platform %s: the program is %s", os, p.Bin)
		}
	}
}

// entriesOf returns the names in a compressed archive.
func entriesOf(t *testing.T, archive []byte) (names []string) {
	t.Helper()
	for r := tar.NewReader(unzipped(t, bytes.NewReader(archive))); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
	}
}

// TestArchiveHasManualPages checks that the archive of a release has the pages of its commands.
func TestArchiveHasManualPages(t *testing.T) {
	t.Parallel()
	s := settings{repository: "../../..", out: t.TempDir()}
	b := example()[0]
	if err := writeProgramArchive(s, b, manualPages(b.release)); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(filepath.Join(s.out, "portolan_0.1.0_linux_amd64.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all := files(t, unzipped(t, f))
	for name, words := range map[string]string{
		"man/man1/portolan.1":         `"2026-11-22" "portolan v0.1.0"`,
		"man/man1/portolan-explain.1": ".SH EXAMPLES",
	} {
		if got := all["portolan_0.1.0_linux_amd64/"+name]; !strings.Contains(got, words) {
			t.Errorf("%s lacks %q: %.300s", name, words, got)
		}
	}
}
