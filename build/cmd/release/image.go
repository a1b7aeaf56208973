package main

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
)

// What the image has; deploy/image/Dockerfile says the same.
const (
	imageEntrypoint = "/portolan"
	imageUser       = "65532:65532"
	imagePorts      = "53/udp 53/tcp 9153/tcp"
	imageTitle      = "Portolan"
	imageLicenses   = "Apache-2.0"
	imageSummary    = "A DNS server for the names of a Kubernetes cluster"
	imageCapability = "cap_net_bind_service=+p"
)

// Media types of the OCI Image Format.
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// descriptor points to content by its digest.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    *imagePlatform    `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type imagePlatform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
	Variant      string `json:"variant,omitempty"`
}

type imageIndex struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Manifests     []descriptor `json:"manifests"`
}

type imageManifest struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType"`
	Config        descriptor        `json:"config"`
	Layers        []descriptor      `json:"layers"`
	Annotations   map[string]string `json:"annotations,omitempty"`
}

type imageConfig struct {
	Created time.Time `json:"created"`
	imagePlatform
	Config struct {
		User         string              `json:"User"`
		ExposedPorts map[string]struct{} `json:"ExposedPorts"`
		Entrypoint   []string            `json:"Entrypoint"`
		WorkingDir   string              `json:"WorkingDir"`
		Labels       map[string]string   `json:"Labels"`
	} `json:"config"`
	RootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
	History []imageHistory `json:"history"`
}

type imageHistory struct {
	Created   time.Time `json:"created"`
	CreatedBy string    `json:"created_by"`
}

// layout collects the blobs of an OCI image layout.
type layout struct {
	blobs []entry
	has   map[string]bool
}

// add adds content and returns what points to it.
func (l *layout) add(mediaType string, data []byte) descriptor {
	sum := fmt.Sprintf("%x", sha256.Sum256(data))
	if !l.has[sum] {
		l.has[sum] = true
		l.blobs = append(l.blobs, entry{name: "blobs/sha256/" + sum, mode: 0o644, data: data})
	}
	return descriptor{MediaType: mediaType, Digest: "sha256:" + sum, Size: len(data)}
}

// addJSON adds v as JSON.
func (l *layout) addJSON(mediaType string, v any) (descriptor, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return descriptor{}, err
	}
	return l.add(mediaType, data), nil
}

// writeImage writes an archive of an OCI image layout, whose image has a
// manifest for each of the programs that are for Linux. With none it writes
// nothing.
func writeImage(file string, programs []program) error {
	l := &layout{has: make(map[string]bool)}
	image := imageIndex{SchemaVersion: 2, MediaType: typeIndex}
	r := programs[0].release
	for _, b := range programs {
		if b.platform.os != "linux" {
			continue
		}
		d, err := l.addPlatform(b)
		if err != nil {
			return fmt.Errorf("image for %s: %w", b.platform, err)
		}
		image.Manifests = append(image.Manifests, d)
	}
	if len(image.Manifests) == 0 {
		return nil
	}
	d, err := l.addJSON(typeIndex, image)
	if err != nil {
		return err
	}
	d.Annotations = map[string]string{"org.opencontainers.image.ref.name": r.tag()}
	top, err := json.Marshal(imageIndex{SchemaVersion: 2, MediaType: typeIndex, Manifests: []descriptor{d}})
	if err != nil {
		return err
	}
	entries := append([]entry{
		{name: "oci-layout", mode: 0o644, data: []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{name: "index.json", mode: 0o644, data: top},
	}, l.blobs...)
	data, err := tarBytes(entries, r.time)
	if err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o644)
}

// addPlatform adds the image of one platform and returns its manifest's
// descriptor.
func (l *layout) addPlatform(b program) (descriptor, error) {
	files, err := tarBytes([]entry{{
		name: strings.TrimPrefix(imageEntrypoint, "/"), mode: 0o755, data: b.data,
		pax: map[string]string{"SCHILY.xattr.security.capability": bindCapability()},
	}}, b.release.time)
	if err != nil {
		return descriptor{}, err
	}
	packed, err := gzipBytes(files)
	if err != nil {
		return descriptor{}, err
	}
	c := newImageConfig(b)
	c.RootFS.DiffIDs = []string{fmt.Sprintf("sha256:%x", sha256.Sum256(files))}
	config, err := l.addJSON(typeConfig, c)
	if err != nil {
		return descriptor{}, err
	}
	m, err := l.addJSON(typeManifest, imageManifest{
		SchemaVersion: 2, MediaType: typeManifest, Config: config,
		Layers: []descriptor{l.add(typeLayer, packed)}, Annotations: c.Config.Labels,
	})
	m.Platform = &c.imagePlatform
	return m, err
}

// newImageConfig is the configuration of the image but for its layers.
func newImageConfig(b program) imageConfig {
	c := imageConfig{Created: b.release.time}
	c.imagePlatform = imagePlatform{Architecture: b.platform.arch, OS: b.platform.os}
	if b.platform.arch == "arm64" {
		c.Variant = "v8"
	}
	c.Config.User, c.Config.WorkingDir = imageUser, "/"
	c.Config.Entrypoint = []string{imageEntrypoint}
	c.Config.ExposedPorts = make(map[string]struct{})
	for port := range strings.FieldsSeq(imagePorts) {
		c.Config.ExposedPorts[port] = struct{}{}
	}
	c.Config.Labels = map[string]string{
		"org.opencontainers.image.title":       imageTitle,
		"org.opencontainers.image.description": imageSummary,
		"org.opencontainers.image.licenses":    imageLicenses,
		"org.opencontainers.image.version":     b.release.version,
	}
	c.RootFS.Type = "layers"
	c.History = []imageHistory{{Created: b.release.time, CreatedBy: "build/cmd/release"}}
	return c
}

// bindCapability is imageCapability as the extended attribute
// security.capability holds it: CAP_NET_BIND_SERVICE permitted and not effective,
// in version 2 of vfs_cap_data (linux/capability.h).
func bindCapability() string {
	const (
		revision2      = 0x02000000
		netBindService = 10
	)
	var data [20]byte // magic, then permitted and inheritable, low words before high ones
	binary.LittleEndian.PutUint32(data[0:], revision2)
	binary.LittleEndian.PutUint32(data[4:], 1<<netBindService)
	return string(data[:])
}
