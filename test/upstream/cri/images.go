//go:build linux

package cri

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"portolan.dev/portolan/test/upstream/image"
)

func imageStatus(i image.Image) *runtimeapi.Image {
	return &runtimeapi.Image{
		Id: i.Name, RepoTags: []string{i.Name + ":latest"}, Size: 1, Uid: &runtimeapi.Int64Value{Value: 0},
	}
}

// ListImages lists the images.
func (s *Server) ListImages(
	context.Context, *runtimeapi.ListImagesRequest,
) (*runtimeapi.ListImagesResponse, error) {
	all := &runtimeapi.ListImagesResponse{}
	for _, i := range s.config.Images {
		all.Images = append(all.Images, imageStatus(i))
	}
	return all, nil
}

// ImageStatus describes an image, if there is one.
func (s *Server) ImageStatus(
	_ context.Context, r *runtimeapi.ImageStatusRequest,
) (*runtimeapi.ImageStatusResponse, error) {
	if i, ok := s.config.Images.Find(r.GetImage().GetImage()); ok {
		return &runtimeapi.ImageStatusResponse{Image: imageStatus(i)}, nil
	}
	return &runtimeapi.ImageStatusResponse{}, nil
}

// PullImage finds an image. There are no others than those of Config.
func (s *Server) PullImage(
	_ context.Context, r *runtimeapi.PullImageRequest,
) (*runtimeapi.PullImageResponse, error) {
	i, ok := s.config.Images.Find(r.GetImage().GetImage())
	if !ok {
		return nil, status.Errorf(codes.NotFound, "no image %s: none is pulled", r.GetImage().GetImage())
	}
	return &runtimeapi.PullImageResponse{ImageRef: i.Name}, nil
}

// RemoveImage does nothing.
func (s *Server) RemoveImage(
	context.Context, *runtimeapi.RemoveImageRequest,
) (*runtimeapi.RemoveImageResponse, error) {
	return &runtimeapi.RemoveImageResponse{}, nil
}

// ImageFsInfo describes the file system of images and containers.
func (s *Server) ImageFsInfo(
	context.Context, *runtimeapi.ImageFsInfoRequest,
) (*runtimeapi.ImageFsInfoResponse, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(s.config.Dir, &fs); err != nil {
		return nil, err
	}
	usage := []*runtimeapi.FilesystemUsage{{
		Timestamp:  time.Now().UnixNano(),
		FsId:       &runtimeapi.FilesystemIdentifier{Mountpoint: s.config.Dir},
		UsedBytes:  &runtimeapi.UInt64Value{Value: 1},
		InodesUsed: &runtimeapi.UInt64Value{Value: 1},
	}}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: usage, ContainerFilesystems: usage}, nil
}
