// Package image has what images of Kubernetes' end-to-end tests have: programs built from the
// same sources, and the machine's own instead of those of a distribution. Nothing is pulled.
package image

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"portolan.dev/portolan/test/e2e/pinned"
)

// Image is what is run under an image's name.
type Image struct {
	Name       string   // without registry and tag
	Entrypoint []string // what the command of a container replaces
	Arguments  []string // what its arguments replace
	// Program is a file of this machine that the image has in its root directory, and so are Files.
	Program string
	Files   []string
}

// Store is the images that there are, by their names.
type Store map[string]Image

const agnhost, issue74839 = "agnhost", "regression-issue-74839"

// Prepare builds the programs that the user's cache directory does not hold (a minute), and
// returns the images: agnhost, busybox, pause and that of tests of DNS, and what a test of connection tracking needs.
// The sources are in test/images of k8s.io/kubernetes.
func Prepare(ctx context.Context, log *slog.Logger) (Store, error) {
	programs, err := pinned.Set{
		Module: "portolan.dev/portolan/test/upstream",
		Name:   "images-%s",
		Packages: map[string]string{
			agnhost:    "k8s.io/kubernetes/test/images/agnhost",
			issue74839: "k8s.io/kubernetes/test/images/regression-issue-74839",
		},
		Versions:    []string{"k8s.io/kubernetes"},
		Environment: []string{"CGO_ENABLED=0"},
	}.Prepare(ctx, log)
	if err != nil {
		return nil, err
	}
	sources, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	certificate := filepath.Join(string(bytes.TrimSpace(sources)), "test/images/agnhost/porter/localhost")
	store := Store{}
	for _, i := range []Image{
		{
			Name: agnhost, Entrypoint: []string{"/agnhost"}, Arguments: []string{"pause"}, Program: programs.Path(agnhost),
			Files: []string{certificate + ".crt", certificate + ".key"},
		},
		{Name: "pause", Entrypoint: []string{"/agnhost", "pause"}, Program: programs.Path(agnhost)},
		{Name: issue74839, Entrypoint: []string{"/" + issue74839}, Program: programs.Path(issue74839)},
		{Name: "busybox", Arguments: []string{"sh"}},
		{Name: "glibc-dns-testing", Arguments: []string{"sh"}}, // dig and getent are those of this machine
	} {
		store[i.Name] = i
	}
	return store, nil
}

// Find finds an image by a reference, such as registry.k8s.io/pause:3.10 or the same with a
// digest. Registry and version do not count.
func (s Store) Find(reference string) (Image, bool) {
	reference, _, _ = strings.Cut(reference, "@")
	name, _, _ := strings.Cut(path.Base(reference), ":")
	i, ok := s[name]
	return i, ok
}
