package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"

	"go.yaml.in/yaml/v3"
)

// krewFile is the manifest of the plugin of kubectl. Its name is that of the plugin, as krew demands it.
const krewFile = krewName + ".yaml"

// krewName is the plugin's name: kubectl portolan.
const krewName = "portolan"

// krewPlugin is a manifest of krew (krew.sigs.k8s.io, "Writing Krew plugin manifests").
type krewPlugin struct {
	APIVersion string       `yaml:"apiVersion"`
	Kind       string       `yaml:"kind"`
	Metadata   krewMetadata `yaml:"metadata"`
	Spec       krewSpec     `yaml:"spec"`
}

type krewMetadata struct {
	Name string `yaml:"name"`
}

type krewSpec struct {
	Version          string         `yaml:"version"`
	Homepage         string         `yaml:"homepage"`
	ShortDescription string         `yaml:"shortDescription"`
	Description      string         `yaml:"description"`
	Caveats          string         `yaml:"caveats"`
	Platforms        []krewPlatform `yaml:"platforms"`
}

type krewPlatform struct {
	Selector krewSelector     `yaml:"selector"`
	URI      string           `yaml:"uri"`
	SHA256   string           `yaml:"sha256"`
	Bin      string           `yaml:"bin"`
	Files    []krewOfArchives `yaml:"files"`
}

type krewSelector struct {
	MatchLabels map[string]string `yaml:"matchLabels"`
}

// krewOfArchives is a file of an archive, and where it is installed.
type krewOfArchives struct {
	From string `yaml:"from"`
	To   string `yaml:"to"`
}

// writeKrew writes the manifest of the archives in s.out, which are downloaded from s.downloads.
func writeKrew(s settings, programs []program) error {
	r := programs[0].release
	m := krewPlugin{
		APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin", Metadata: krewMetadata{krewName},
		Spec: krewSpec{
			Version: r.version, Homepage: s.homepage,
			ShortDescription: "Explain and test names, policies and routes",
			Description: "Says why a Pod cannot resolve a name, reach an address or get an answer from a URL,\n" +
				"and what mends that; tests who reaches what; finds problems in a cluster or in\n" +
				"manifests. It reads the cluster as kubectl does, and changes nothing in it.\n",
			Caveats: "To complete its arguments:\n" +
				"  kubectl portolan completion > ~/.local/bin/kubectl_complete-portolan\n" +
				"  chmod +x ~/.local/bin/kubectl_complete-portolan\n",
		},
	}
	for _, p := range programs {
		name := r.fileName(p.platform.String())
		data, err := os.ReadFile(filepath.Join(s.out, name+".tar.gz"))
		if err != nil {
			return err
		}
		m.Spec.Platforms = append(m.Spec.Platforms, krewPlatform{
			Selector: krewSelector{map[string]string{"os": p.platform.os, "arch": p.platform.arch}},
			URI:      s.downloads + "/" + r.version + "/" + name + ".tar.gz", SHA256: fmt.Sprintf("%x", sha256.Sum256(data)),
			Bin: p.platform.executable(),
			Files: []krewOfArchives{
				{From: name + "/" + p.platform.executable(), To: "."}, {From: name + "/LICENSE", To: "."},
			},
		})
	}
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(m); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.out, krewFile), b.Bytes(), 0o644)
}
