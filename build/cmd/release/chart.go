package main

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
)

// The lines of the chart that a release sets.
var (
	chartVersion    = regexp.MustCompile(`(?m)^version: .*$`)
	appVersion      = regexp.MustCompile(`(?m)^appVersion: .*$`)
	imageRepository = regexp.MustCompile(`(?m)^  repository: portolan$`)
)

// writeChart writes the chart in dir as an archive that helm installs and pushes.
// Its version and that of the image are the release's; image is the image's
// repository, or empty for the chart's default.
func writeChart(dir, out string, r release, image string) error {
	name := filepath.Base(dir)
	var entries []entry
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		if data, err = stampFile(relative, data, r, image); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		entries = append(entries, entry{name: path.Join(name, filepath.ToSlash(relative)), mode: 0o644, data: data})
		return nil
	})
	if err != nil {
		return err
	}
	return writeTarGz(filepath.Join(out, fmt.Sprintf("%s-%s.tgz", name, r.semver())), entries, r.time)
}

// stampFile sets the release's values in the chart's file of that name.
func stampFile(name string, data []byte, r release, image string) (_ []byte, err error) {
	switch name {
	case "Chart.yaml":
		if data, err = replaceLine(data, chartVersion, "version: "+r.semver()); err != nil {
			return nil, err
		}
		return replaceLine(data, appVersion, "appVersion: "+r.tag())
	case "values.yaml":
		if image != "" {
			return replaceLine(data, imageRepository, "  repository: "+image)
		}
	}
	return data, nil
}

// replaceLine replaces the one line that matches.
func replaceLine(data []byte, line *regexp.Regexp, with string) ([]byte, error) {
	if n := len(line.FindAll(data, -1)); n != 1 {
		return nil, fmt.Errorf("%d lines match %s, want 1", n, line)
	}
	return line.ReplaceAllLiteral(data, []byte(with)), nil
}
