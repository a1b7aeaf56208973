package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

var commitTime = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// example is what buildPrograms would return.
func example() []program {
	info := &debug.BuildInfo{
		GoVersion: "go1.26.8",
		Main:      debug.Module{Path: "portolan.dev/portolan", Version: "v0.1.0"},
		Deps: []*debug.Module{
			{Path: "example.com/a", Version: "v1.0.0", Sum: "h1:sum"},
			{Path: "example.com/b", Version: "v1.0.0", Replace: &debug.Module{Path: "example.com/c", Version: "v2.0.0+incompatible"}},
		},
		Settings: []debug.BuildSetting{{Key: "vcs.time", Value: commitTime.Format(time.RFC3339)}},
	}
	var all []program
	for _, p := range platforms {
		r, err := releaseOf(info)
		if err != nil {
			panic(err) // the example has a time
		}
		all = append(all, program{platform: p, release: r, data: []byte("program for " + p.String()), info: info})
	}
	return all
}

func TestDockerfileAgrees(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../deploy/image/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		fmt.Sprintf("go build %s -ldflags=%q -o %s ./cmd/portolan\n", buildFlag, linkerFlags, imageEntrypoint),
		"RUN setcap " + imageCapability + " " + imageEntrypoint + "\n",
		fmt.Sprintf("org.opencontainers.image.title=%q", imageTitle),
		fmt.Sprintf("org.opencontainers.image.description=%q", imageSummary),
		fmt.Sprintf("org.opencontainers.image.licenses=%q", imageLicenses),
		"\nUSER " + imageUser + "\n",
		"\nEXPOSE " + imagePorts + "\n",
		fmt.Sprintf("\nENTRYPOINT [%q]\n", imageEntrypoint),
	} {
		if !strings.Contains(string(text), line) {
			t.Errorf("deploy/image/Dockerfile lacks %q", line)
		}
	}
}

func TestRepeatedReleaseIsEqual(t *testing.T) {
	t.Parallel()
	var sums [2]string
	for i := range sums {
		out := t.TempDir()
		for _, b := range example() {
			if err := writeProgramArchive(settings{repository: "../../..", out: out}, b, manualPages(b.release)); err != nil {
				t.Fatal(err)
			}
			if err := writeSBOM(filepath.Join(out, b.platform.String()+".spdx.json"), b); err != nil {
				t.Fatal(err)
			}
		}
		if err := writeImage(filepath.Join(out, "image.tar"), example()); err != nil {
			t.Fatal(err)
		}
		if err := writeChart("../../../deploy/helm/portolan", out, example()[0].release, ""); err != nil {
			t.Fatal(err)
		}
		if err := writeSums(out); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(out, sumsFile))
		if err != nil {
			t.Fatal(err)
		}
		sums[i] = string(text)
	}
	if sums[0] != sums[1] || strings.Count(sums[0], "\n") != 2*len(platforms)+2 {
		t.Errorf("sums of two releases of one commit:\n%s\n%s", sums[0], sums[1])
	}
}

// files reads an archive.
func files(t *testing.T, r io.Reader) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.Equal(commitTime) || h.Uid != 0 || h.Uname != "" {
			t.Errorf("%s: time %v, owner %d %q; want the commit's time and root", h.Name, h.ModTime, h.Uid, h.Uname)
		}
		data, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		all[h.Name] = string(data)
		for k, v := range h.PAXRecords {
			all[h.Name+" "+k] = v
		}
	}
}

func unzipped(t *testing.T, r io.Reader) io.Reader {
	t.Helper()
	z, err := gzip.NewReader(r)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func TestImageHasEachLinuxPlatform(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "image.tar")
	if err := writeImage(file, example()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	all := files(t, bytes.NewReader(data))
	read := func(d descriptor, v any) string {
		blob, ok := all["blobs/"+strings.Replace(d.Digest, ":", "/", 1)]
		if !ok || len(blob) != d.Size {
			t.Fatalf("blob %s: there is %v, of %d octets, want %d", d.Digest, ok, len(blob), d.Size)
		}
		if v != nil {
			if err := json.Unmarshal([]byte(blob), v); err != nil {
				t.Fatal(err)
			}
		}
		return blob
	}
	var top, image imageIndex
	if err := json.Unmarshal([]byte(all["index.json"]), &top); err != nil {
		t.Fatal(err)
	}
	if len(top.Manifests) != 1 || top.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "v0.1.0" {
		t.Fatalf("index.json: %+v, want one image, v0.1.0", top)
	}
	read(top.Manifests[0], &image)
	var got []string
	for _, d := range image.Manifests {
		var m imageManifest
		var c imageConfig
		read(d, &m)
		read(m.Config, &c)
		got = append(got, d.Platform.OS+"_"+d.Platform.Architecture)
		layer := files(t, unzipped(t, strings.NewReader(read(m.Layers[0], nil))))
		if want := "program for " + c.OS + "_" + c.Architecture; layer["portolan"] != want {
			t.Errorf("the layer of %s has the file %q, want %q", c.Architecture, layer["portolan"], want)
		}
		// As setcap(8) writes cap_net_bind_service=+p.
		const want = "\x00\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
		if got := layer["portolan SCHILY.xattr.security.capability"]; got != want {
			t.Errorf("file capability %q, want %q", got, want)
		}
		if c.Config.User != imageUser || c.Config.Entrypoint[0] != imageEntrypoint {
			t.Errorf("configuration %+v", c.Config)
		}
	}
	if want := "linux_amd64 linux_arm64"; strings.Join(got, " ") != want {
		t.Errorf("platforms of the image: %v, want %s", got, want)
	}
}

func TestSBOMListsLinkedModules(t *testing.T) {
	t.Parallel()
	doc := newSBOM(example()[0])
	var got []string
	ids := make(map[string]bool)
	for _, p := range doc.Packages {
		got = append(got, p.ExternalRefs[0].Locator)
		ids[p.SPDXID] = true
	}
	want := "pkg:golang/portolan.dev/portolan@v0.1.0 pkg:golang/stdlib@1.26.8 " +
		"pkg:golang/example.com/a@v1.0.0 pkg:golang/example.com/c@v2.0.0%2Bincompatible"
	if strings.Join(got, " ") != want {
		t.Errorf("packages %v, want %s", got, want)
	}
	for _, r := range doc.Relationships {
		if !ids[r.Related] || r.Element != spdxDocumentID && !ids[r.Element] {
			t.Errorf("relationship %v names an element that is not there", r)
		}
	}
}

func TestChartHasTheReleasesVersion(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	if err := writeChart("../../../deploy/helm/portolan", out, release{version: "v1.2.3", time: commitTime}, "registry.example.com/portolan"); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(filepath.Join(out, "portolan-1.2.3.tgz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all := files(t, unzipped(t, f))
	for _, line := range []string{"\nversion: 1.2.3\n", "\nappVersion: v1.2.3\n"} {
		if !strings.Contains(all["portolan/Chart.yaml"], line) {
			t.Errorf("Chart.yaml lacks %q:\n%s", line, all["portolan/Chart.yaml"])
		}
	}
	if !strings.Contains(all["portolan/values.yaml"], "\n  repository: registry.example.com/portolan\n") {
		t.Error("values.yaml lacks the image's repository")
	}
	if all["portolan/templates/deployment.yaml"] == "" || all["portolan/values.schema.json"] == "" {
		t.Error("the chart lacks its templates or its schema")
	}
}
