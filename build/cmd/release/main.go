// Command release builds everything that a release publishes into one
// directory, without Docker and without a registry:
//
//	go build ─► binaries ─┬─► portolan_VERSION_OS_ARCH.tar.gz        with LICENSE, README.md and manual pages
//	                      ├─► portolan_VERSION_OS_ARCH.spdx.json     SBOM, from the binary's build information
//	                      └─► portolan_VERSION_image.tar             OCI image layout, one manifest for each platform
//	archives ───────────────► portolan.yaml                          the manifest of krew, with -downloads
//	deploy/helm/portolan ───► portolan-VERSION.tgz                   the chart
//	all of these ───────────► SHA256SUMS
//
// The version and the time of the commit come from the binaries' build
// information (debug/buildinfo), so they are those that `portolan version`
// prints. Equal commits and Go versions give equal files: every archive has its
// entries in order, without owners, and with the time of the commit.
//
// Specifications: OCI Image Format 1.1, SPDX 2.3, Helm's chart archive.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// platforms are those that binaries are built for. Those of Linux are in the
// image, too; those of Windows are for the commands that read a cluster or
// manifests.
var platforms = []platform{
	{"linux", "amd64"},
	{"linux", "arm64"},
	{"darwin", "amd64"},
	{"darwin", "arm64"},
	{"windows", "amd64"},
	{"windows", "arm64"},
}

// settings are what the flags say.
type settings struct {
	repository string // its directory
	out        string // the directory that the files are written to
	image      string // the image's repository in the chart; the chart's own when empty
	downloads  string // where releases are downloaded, each below its version; empty for no manifest of krew
	homepage   string // for the manifest
	platforms  []platform
}

func main() {
	s := settings{platforms: platforms}
	flag.StringVar(&s.repository, "C", ".", "the repository's `directory`")
	flag.StringVar(&s.out, "o", "dist", "write to this `directory`, which is emptied first")
	flag.StringVar(&s.image, "image", "", "the image's `repository` in the chart, such as registry.example/owner/portolan")
	flag.StringVar(&s.downloads, "downloads", "",
		"write the manifest of krew for archives below this `URL`, such as https://github.com/OWNER/NAME/releases/download")
	flag.StringVar(&s.homepage, "homepage", "https://portolan.dev", "the homepage in the manifest of krew is this `URL`")
	only := flag.String("platform", "", "build for this `OS_ARCH` alone, such as linux_amd64")
	verify := flag.Bool("verify", false, "build a second time from a clone in another directory, and compare")
	flag.Parse()
	if *only != "" {
		s.platforms = slices.DeleteFunc(slices.Clone(platforms), func(p platform) bool { return p.String() != *only })
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := run(ctx, s)
	if err == nil && *verify {
		err = verifyClone(ctx, s)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "release: %v\n", err)
		os.Exit(1)
	}
}

// run builds all files of a release.
func run(ctx context.Context, s settings) error {
	if len(s.platforms) == 0 {
		return fmt.Errorf("unknown platform; there are %v", platforms)
	}
	if err := os.RemoveAll(s.out); err != nil {
		return err
	}
	if err := os.MkdirAll(s.out, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "portolan-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	programs, err := buildPrograms(ctx, s, work)
	if err != nil {
		return err
	}
	r := programs[0].release
	if strings.Contains(r.version, "+dirty") {
		fmt.Fprintln(os.Stderr, "release: warning: the working tree has changes that are not committed")
	}
	pages := manualPages(r)
	for _, p := range programs {
		if err := writeProgramArchive(s, p, pages); err != nil {
			return err
		}
		if err := writeSBOM(filepath.Join(s.out, r.fileName(p.platform.String()+".spdx.json")), p); err != nil {
			return err
		}
	}
	if s.downloads != "" {
		if err := writeKrew(s, programs); err != nil {
			return err
		}
	}
	if err := writeImage(filepath.Join(s.out, r.fileName("image.tar")), programs); err != nil {
		return err
	}
	if err := writeChart(filepath.Join(s.repository, "deploy/helm/portolan"), s.out, r, s.image); err != nil {
		return err
	}
	return writeSums(s.out)
}

// verifyClone builds from a clone of the repository's commit, in another
// directory, and compares the checksums with those in s.out.
func verifyClone(ctx context.Context, s settings) error {
	first, err := os.ReadFile(filepath.Join(s.out, sumsFile))
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "portolan-clone-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	again := s
	again.repository, again.out = filepath.Join(dir, "repository"), filepath.Join(dir, "dist")
	cmd := exec.CommandContext(ctx, "git", "clone", "--quiet", "--no-hardlinks", s.repository, again.repository)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, text)
	}
	if err := run(ctx, again); err != nil {
		return err
	}
	second, err := os.ReadFile(filepath.Join(again.out, sumsFile))
	if err != nil {
		return err
	}
	if string(first) != string(second) {
		return fmt.Errorf("two builds of one commit differ:\n%s\n%s", first, second)
	}
	fmt.Println("two builds of one commit, in two directories, are equal")
	return nil
}

// release is what all files of a release have in common.
type release struct {
	version string    // the module's, such as v0.1.0
	time    time.Time // the commit's
}

// fileName is the name of a file of the release. It has the version without the
// v, as semantic versions are written.
func (r release) fileName(suffix string) string {
	return "portolan_" + r.semver() + "_" + suffix
}

// semver is the version as the chart and file names have it.
func (r release) semver() string { return strings.TrimPrefix(r.version, "v") }

// tag is the version as a tag of an image, which must not have a plus sign.
func (r release) tag() string { return strings.ReplaceAll(r.version, "+", "-") }
