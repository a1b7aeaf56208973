package main

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"time"
)

// How binaries are built; deploy/image/Dockerfile says the same.
const (
	buildFlag   = "-trimpath"
	linkerFlags = "-s -w"
)

// platform is one that Go builds for.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "_" + p.arch }

// executable is the name of the program's file.
func (p platform) executable() string {
	if p.os == "windows" {
		return "portolan.exe"
	}
	return "portolan"
}

// program is the binary for one platform.
type program struct {
	platform platform
	release  release
	data     []byte
	info     *debug.BuildInfo
}

// buildPrograms builds the program for every platform; work is a directory for
// files that are not kept.
func buildPrograms(ctx context.Context, s settings, work string) ([]program, error) {
	var all []program
	for _, p := range s.platforms {
		b, err := buildProgram(ctx, s.repository, filepath.Join(work, p.String()), p)
		if err != nil {
			return nil, err
		}
		all = append(all, b)
	}
	return all, nil
}

func buildProgram(ctx context.Context, repository, file string, p platform) (program, error) {
	cmd := exec.CommandContext(ctx, "go", "build", buildFlag, "-buildvcs=true", "-ldflags="+linkerFlags, "-o", file,
		"./cmd/portolan")
	cmd.Dir = repository
	// Of the settings that go into a binary, none comes from the environment.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.os, "GOARCH="+p.arch, "GOAMD64=v1", "GOARM64=v8.0",
		"GOFLAGS=", "GOEXPERIMENT=", "GOFIPS140=off", "GOWORK=off")
	if text, err := cmd.CombinedOutput(); err != nil {
		return program{}, fmt.Errorf("%s for %s: %w\n%s", cmd, p, err, text)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return program{}, err
	}
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return program{}, fmt.Errorf("build information of %s: %w", p, err)
	}
	r, err := releaseOf(info)
	if err != nil {
		return program{}, fmt.Errorf("build information of %s: %w", p, err)
	}
	return program{platform: p, release: r, data: data, info: info}, nil
}

// releaseOf reads the version and the time of the commit.
func releaseOf(info *debug.BuildInfo) (release, error) {
	for _, s := range info.Settings {
		if s.Key != "vcs.time" {
			continue
		}
		t, err := time.Parse(time.RFC3339, s.Value)
		return release{version: info.Main.Version, time: t.UTC()}, err
	}
	return release{}, fmt.Errorf("version %s has no commit: build in a clone of the repository, not in a worktree",
		info.Main.Version)
}
