//go:build linux

package cri

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	root "portolan.dev/portolan/test/e2e/container"
	"portolan.dev/portolan/test/upstream/image"
)

// container is a process of a Pod.
type container struct {
	id, dir string
	sandbox *sandbox
	config  *runtimeapi.ContainerConfig
	image   image.Image
	created time.Time
	ended   chan struct{} // closed when it ended

	mu       sync.Mutex
	process  *plan
	pid      int // 0 before the start
	started  time.Time
	finished time.Time // zero until then
	exitCode int32
	failure  string // why it did not start
}

// searchPath is the environment variable PATH of containers.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// CreateContainer makes the files of a container.
func (s *Server) CreateContainer(
	_ context.Context, r *runtimeapi.CreateContainerRequest,
) (*runtimeapi.CreateContainerResponse, error) {
	b, err := find(s, s.sandboxes, r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	i, ok := s.config.Images.Find(r.GetConfig().GetImage().GetImage())
	if !ok {
		return nil, status.Errorf(codes.NotFound, "no image %s", r.GetConfig().GetImage().GetImage())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id, dir, err := s.newID("container")
	if err != nil {
		return nil, err
	}
	c := &container{
		id: id, dir: dir, sandbox: b, config: r.GetConfig(), image: i, created: time.Now(), ended: make(chan struct{}),
	}
	if err := c.makeRoot(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s.containers[id] = c
	return &runtimeapi.CreateContainerResponse{ContainerId: id}, nil
}

func (c *container) root() string { return filepath.Join(c.dir, "root") }

// makeRoot makes the directories and files that each container has of its own. What the program
// is, mounts show.
func (c *container) makeRoot() error {
	for _, dir := range []string{"etc", "usr", "tmp", "var/run", "var/log", "root", "dev/shm", "uploads"} {
		if err := os.MkdirAll(filepath.Join(c.root(), dir), 0o755); err != nil {
			return err
		}
	}
	for _, dir := range []string{"tmp", "dev/shm"} {
		if err := os.Chmod(filepath.Join(c.root(), dir), 0o777|fs.ModeSticky); err != nil {
			return err
		}
	}
	for _, link := range []string{"bin", "sbin", "lib", "lib64"} { // as Debian has them
		if err := os.Symlink(filepath.Join("usr", link), filepath.Join(c.root(), link)); err != nil {
			return err
		}
	}
	hostname := cmp.Or(c.sandbox.config.GetHostname(), "localhost")
	for name, text := range map[string]string{
		"hostname": hostname + "\n", "hosts": "127.0.0.1 localhost\n::1 localhost\n",
		"passwd": "root:x:0:0::/root:/bin/sh\n", "group": "root:x:0:\n", "nsswitch.conf": "hosts: files dns\n",
	} {
		if err := os.WriteFile(filepath.Join(c.root(), "etc", name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// mounts are what the container sees of this machine, and of the kubelet's volumes.
func (c *container) mounts() ([]root.Mount, error) {
	all := []root.Mount{
		{Source: "/usr", Target: "/usr"},
		{Source: "/etc/alternatives", Target: "/etc/alternatives"},
		{Source: "/etc/ld.so.cache", Target: "/etc/ld.so.cache"},
		{Source: c.sandbox.resolvConf(), Target: "/etc/resolv.conf"},
	}
	for _, device := range []string{"null", "zero", "full", "random", "urandom"} {
		all = append(all, root.Mount{Source: "/dev/" + device, Target: "/dev/" + device, Writable: true})
	}
	files := c.image.Files
	if c.image.Program != "" {
		files = append(slices.Clone(files), c.image.Program)
	}
	for _, file := range files {
		all = append(all, root.Mount{Source: file, Target: "/" + filepath.Base(file)})
	}
	for _, m := range c.config.GetMounts() {
		if err := os.MkdirAll(filepath.Dir(m.GetHostPath()), 0o755); err != nil {
			return nil, err
		}
		if _, err := os.Stat(m.GetHostPath()); errors.Is(err, fs.ErrNotExist) {
			if err := os.Mkdir(m.GetHostPath(), 0o755); err != nil {
				return nil, err
			}
		}
		all = append(all, root.Mount{
			Source: m.GetHostPath(), Target: m.GetContainerPath(), Writable: !m.GetReadonly(),
			Propagated: m.GetPropagation() == runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER,
		})
	}
	return all, nil
}

// plan is what the process of a container is told before it becomes the container's program.
type plan struct {
	root.Surroundings
	Hostname      string // unless the network is the node's
	Args, Env     []string
	Dir           string
	User, Group   int
	Supplementary []int
}

// plan makes the plan of a container in a network; nil is the node's.
func (c *container) plan(in *network) (*plan, error) {
	mounts, err := c.mounts()
	if err != nil {
		return nil, err
	}
	security := c.config.GetLinux().GetSecurityContext()
	p := &plan{
		Surroundings: root.Surroundings{Root: c.root(), Writable: !security.GetReadonlyRootfs(), Mounts: mounts},
		Hostname:     c.sandbox.config.GetHostname(), Args: c.arguments(), Env: c.environment(),
		Dir:  cmp.Or(c.config.GetWorkingDir(), "/"),
		User: int(security.GetRunAsUser().GetValue()), Group: int(security.GetRunAsGroup().GetValue()),
	}
	for _, group := range security.GetSupplementalGroups() {
		p.Supplementary = append(p.Supplementary, int(group))
	}
	if in != nil {
		p.NetworkFile = in.Path()
	}
	return p, nil
}

// arguments are those of the Pod, or of the image: a command replaces both the entry point and
// the arguments of the image.
func (c *container) arguments() []string {
	switch command, args := c.config.GetCommand(), c.config.GetArgs(); {
	case len(command) > 0:
		return slices.Concat(command, args)
	case len(args) > 0:
		return slices.Concat(c.image.Entrypoint, args)
	default:
		return slices.Concat(c.image.Entrypoint, c.image.Arguments)
	}
}

func (c *container) environment() []string {
	env := []string{"PATH=" + searchPath, "HOME=/root", "HOSTNAME=" + c.sandbox.config.GetHostname()}
	for _, e := range c.config.GetEnvs() {
		env = append(env, e.GetKey()+"="+string(e.GetValue()))
	}
	return env
}

// StartContainer starts the container's program.
func (s *Server) StartContainer(
	_ context.Context, r *runtimeapi.StartContainerRequest,
) (*runtimeapi.StartContainerResponse, error) {
	c, err := find(s, s.containers, r.GetContainerId())
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	in, stopped := c.sandbox.network, c.sandbox.stopped
	s.mu.Unlock()
	if stopped {
		return nil, status.Errorf(codes.FailedPrecondition, "%s is stopped", c.sandbox.id)
	}
	return &runtimeapi.StartContainerResponse{}, c.start(in)
}

func (c *container) start(in *network) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.started.IsZero() {
		return status.Errorf(codes.FailedPrecondition, "%s was started before", c.id)
	}
	c.started = time.Now()
	var err error
	if c.process, err = c.plan(in); err == nil {
		err = c.run()
	}
	if err != nil {
		c.finished, c.exitCode, c.failure = time.Now(), 128, err.Error()
		close(c.ended)
	}
	return err
}

// run starts the process, and waits until it has become the container's program.
func (c *container) run() error {
	text, err := json.Marshal(c.process)
	if err != nil {
		return err
	}
	log, err := openLog(filepath.Join(c.sandbox.config.GetLogDirectory(), c.config.GetLogPath()))
	if err != nil {
		return err
	}
	failure, become, err := os.Pipe()
	if err != nil {
		return errors.Join(err, log.Close())
	}
	defer failure.Close()
	cmd := exec.Command("/proc/self/exe", enterArgument, string(text))
	cmd.Env = []string{}
	cmd.ExtraFiles = []*os.File{become}
	cmd.Stdout, cmd.Stderr = log.stream("stdout"), log.stream("stderr")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		Setsid:     true, Pdeathsig: syscall.SIGKILL,
	}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the process is told of the death of the thread that started it
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		become.Close()
		started <- err
		if err == nil {
			_ = cmd.Wait() // the state says it
			c.end(cmd.ProcessState)
		}
		log.Close()
	}()
	if err := <-started; err != nil {
		return err
	}
	c.pid = cmd.Process.Pid
	// A process that fails says why, and ends.
	if why, err := io.ReadAll(failure); err != nil || len(why) > 0 {
		c.failure = string(why)
	}
	return nil
}

// end notes how the process ended.
func (c *container) end(state *os.ProcessState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.finished, c.exitCode = time.Now(), int32(state.ExitCode())
	if s, ok := state.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		c.exitCode = 128 + int32(s.Signal())
	}
	close(c.ended)
}

// running returns the ID of the process and what it was told, if it runs.
func (c *container) running() (pid int, process *plan, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pid, c.process, c.pid != 0 && c.finished.IsZero()
}

// stop ends the container: by SIGTERM, and by SIGKILL after the grace period.
func (c *container) stop(grace time.Duration) {
	pid, _, ok := c.running()
	if !ok {
		return
	}
	if grace > 0 {
		_ = unix.Kill(pid, unix.SIGTERM) // it may just have ended
		select {
		case <-c.ended:
			return
		case <-time.After(grace):
		}
	}
	_ = unix.Kill(pid, unix.SIGKILL)
	<-c.ended
}

// StopContainer ends a container.
func (s *Server) StopContainer(
	_ context.Context, r *runtimeapi.StopContainerRequest,
) (*runtimeapi.StopContainerResponse, error) {
	if c, err := find(s, s.containers, r.GetContainerId()); err == nil {
		c.stop(time.Duration(r.GetTimeout()) * time.Second)
	}
	return &runtimeapi.StopContainerResponse{}, nil
}

// RemoveContainer forgets a container.
func (s *Server) RemoveContainer(
	_ context.Context, r *runtimeapi.RemoveContainerRequest,
) (*runtimeapi.RemoveContainerResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.containers[r.GetContainerId()]; ok {
		return &runtimeapi.RemoveContainerResponse{}, s.removeContainer(c)
	}
	return &runtimeapi.RemoveContainerResponse{}, nil
}

// removeContainer needs the lock.
func (s *Server) removeContainer(c *container) error {
	c.stop(0)
	delete(s.containers, c.id)
	return os.RemoveAll(c.dir)
}

func (c *container) state() runtimeapi.ContainerState {
	switch {
	case c.started.IsZero():
		return runtimeapi.ContainerState_CONTAINER_CREATED
	case c.finished.IsZero():
		return runtimeapi.ContainerState_CONTAINER_RUNNING
	default:
		return runtimeapi.ContainerState_CONTAINER_EXITED
	}
}

// reason is that of a container that ended, as container engines word it.
func (c *container) reason() string {
	switch {
	case c.finished.IsZero():
		return ""
	case c.failure != "":
		return "StartError"
	case c.exitCode == 0:
		return "Completed"
	default:
		return "Error"
	}
}

// ContainerStatus describes a container.
func (s *Server) ContainerStatus(
	_ context.Context, r *runtimeapi.ContainerStatusRequest,
) (*runtimeapi.ContainerStatusResponse, error) {
	c, err := find(s, s.containers, r.GetContainerId())
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{
		Id: c.id, Metadata: c.config.GetMetadata(), State: c.state(), CreatedAt: nanoseconds(c.created),
		StartedAt: nanoseconds(c.started), FinishedAt: nanoseconds(c.finished), ExitCode: c.exitCode,
		Image: c.config.GetImage(), ImageRef: c.image.Name, ImageId: c.image.Name, Reason: c.reason(), Message: c.failure,
		Labels: c.config.GetLabels(), Annotations: c.config.GetAnnotations(), Mounts: c.config.GetMounts(),
		LogPath: filepath.Join(c.sandbox.config.GetLogDirectory(), c.config.GetLogPath()),
	}}, nil
}

// ListContainers lists containers.
func (s *Server) ListContainers(
	_ context.Context, r *runtimeapi.ListContainersRequest,
) (*runtimeapi.ListContainersResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, all := r.GetFilter(), &runtimeapi.ListContainersResponse{}
	for _, c := range s.containers {
		c.mu.Lock()
		state := c.state()
		c.mu.Unlock()
		if f.GetId() != "" && f.GetId() != c.id || f.GetState() != nil && f.GetState().GetState() != state ||
			f.GetPodSandboxId() != "" && f.GetPodSandboxId() != c.sandbox.id ||
			!selects(f.GetLabelSelector(), c.config.GetLabels()) {
			continue
		}
		all.Containers = append(all.Containers, &runtimeapi.Container{
			Id: c.id, PodSandboxId: c.sandbox.id, Metadata: c.config.GetMetadata(), Image: c.config.GetImage(),
			ImageRef: c.image.Name, ImageId: c.image.Name, State: state, CreatedAt: nanoseconds(c.created),
			Labels: c.config.GetLabels(), Annotations: c.config.GetAnnotations(),
		})
	}
	return all, nil
}
