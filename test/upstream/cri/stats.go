//go:build linux

package cri

import (
	"context"
	"io/fs"
	"path/filepath"
	"syscall"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ListContainerStats measures what containers have written, for limits of ephemeral storage.
// Processors and memory are not measured: there are no cgroups.
func (s *Server) ListContainerStats(
	_ context.Context, r *runtimeapi.ListContainerStatsRequest,
) (*runtimeapi.ListContainerStatsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, all := r.GetFilter(), &runtimeapi.ListContainerStatsResponse{}
	for _, c := range s.containers {
		if f.GetId() != "" && f.GetId() != c.id || f.GetPodSandboxId() != "" && f.GetPodSandboxId() != c.sandbox.id ||
			!selects(f.GetLabelSelector(), c.config.GetLabels()) {
			continue
		}
		all.Stats = append(all.Stats, s.stats(c))
	}
	return all, nil
}

// ContainerStats measures one container.
func (s *Server) ContainerStats(
	_ context.Context, r *runtimeapi.ContainerStatsRequest,
) (*runtimeapi.ContainerStatsResponse, error) {
	c, err := find(s, s.containers, r.GetContainerId())
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ContainerStatsResponse{Stats: s.stats(c)}, nil
}

func (s *Server) stats(c *container) *runtimeapi.ContainerStats {
	octets, files := usage(c.root())
	return &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{
			Id: c.id, Metadata: c.config.GetMetadata(), Labels: c.config.GetLabels(), Annotations: c.config.GetAnnotations(),
		},
		WritableLayer: &runtimeapi.FilesystemUsage{
			Timestamp: time.Now().UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: s.config.Dir},
			UsedBytes: &runtimeapi.UInt64Value{Value: octets}, InodesUsed: &runtimeapi.UInt64Value{Value: files},
		},
	}
}

// usage is what the files below a directory occupy, as far as they can be read: they change.
func usage(dir string) (octets, files uint64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // it was just removed
		}
		files++
		if info, err := d.Info(); err == nil {
			if s, ok := info.Sys().(*syscall.Stat_t); ok {
				const block = 512 // octets; stat(2)
				octets += uint64(s.Blocks) * block
			}
		}
		return nil
	})
	return octets, files
}
