package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// binaries are the paths of the programs that are compared.
type binaries struct {
	coreDNS, portolan string
	commit            string // of Portolan's tree, with "+" when it was changed since
}

// linkerFlags are those that both are released with.
const linkerFlags = "-ldflags=-s -w"

// build builds both programs: Portolan from the tree into dir, CoreDNS from its
// module once, into the user's cache directory.
func build(ctx context.Context, log *slog.Logger, dir string) (*binaries, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	dirs, err := goTool(ctx, ".", "list", "-m", "-f", "{{.Dir}}", "portolan.dev/portolan", "portolan.dev/portolan/bench")
	if err != nil {
		return nil, err
	}
	tree, bench, _ := strings.Cut(dirs, "\n")
	module := filepath.Join(bench, "coredns")
	version, err := goTool(ctx, module, "list", "-m", "-f", "{{.Version}}", "github.com/coredns/coredns")
	if err != nil {
		return nil, err
	}
	goVersion, err := goTool(ctx, tree, "env", "GOVERSION")
	if err != nil {
		return nil, err
	}
	b := &binaries{
		coreDNS:  filepath.Join(cache, "portolan", fmt.Sprintf("coredns-%s-%s", version, goVersion)),
		portolan: filepath.Join(dir, "portolan"),
		commit:   commit(ctx, tree),
	}
	if _, err := goTool(ctx, tree, "build", "-trimpath", linkerFlags, "-o", b.portolan, "./cmd/portolan"); err != nil {
		return nil, err
	}
	if _, err := os.Stat(b.coreDNS); err == nil {
		return b, nil
	}
	log.Warn("building CoreDNS; it takes about 3 minutes, once", "version", version)
	// Under another name first, so that what is there is always whole.
	part := b.coreDNS + ".part"
	defer os.Remove(part)
	if _, err := goTool(ctx, module, "build", "-trimpath", linkerFlags, "-o", part, "github.com/coredns/coredns"); err != nil {
		return nil, err
	}
	return b, os.Rename(part, b.coreDNS)
}

func goTool(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", args[0], err, &stderr)
	}
	return strings.TrimSpace(string(out)), nil
}

func commit(ctx context.Context, tree string) string {
	describe := exec.CommandContext(ctx, "git", "-C", tree, "describe", "--always", "--exclude=*", "--dirty=+")
	out, err := describe.Output()
	if err != nil {
		return "an unknown commit"
	}
	return strings.TrimSpace(string(out))
}
