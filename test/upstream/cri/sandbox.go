//go:build linux

package cri

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"portolan.dev/portolan/test/namespace"
)

// sandbox is what the containers of a Pod share: a network namespace, and files about names.
type sandbox struct {
	id, dir string
	config  *runtimeapi.PodSandboxConfig
	created time.Time
	network *network // nil for the node's, and when the sandbox is stopped
	stopped bool
}

// network is the namespace of a Pod with a link to the node's, and the Pod's addresses in the
// order of the Pod CIDRs. Each has a route on the node, as with the CNI plugin ptp.
type network struct {
	*namespace.Network
	link      string // on the node
	mounted   string // where the namespace is mounted, if it is
	addresses []netip.Addr
}

// The address of the node's end of each Pod's link, of each family: link-local ones
// (RFC 3927, RFC 4291 section 2.5.6).
const gateway4, gateway6 = "169.254.1.1", "fe80::1"

// sysctls are those of each Pod, as container engines set them: any user may listen on any port
// and send echo requests. Addresses of IPv6 are usable at once.
var sysctls = map[string]string{
	"net.ipv4.ip_unprivileged_port_start": "0",
	"net.ipv4.ping_group_range":           "0 2147483647",
	"net.ipv6.conf.all.accept_dad":        "0",
	"net.ipv6.conf.default.accept_dad":    "0",
}

// RunPodSandbox makes the network of a Pod.
func (s *Server) RunPodSandbox(
	ctx context.Context, r *runtimeapi.RunPodSandboxRequest,
) (*runtimeapi.RunPodSandboxResponse, error) {
	b, err := s.newSandbox(r.GetConfig())
	if err == nil && b.network != nil {
		err = s.connect(ctx, b) // without the lock
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		return nil, errors.Join(err, s.discard(b))
	}
	s.sandboxes[b.id] = b
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: b.id}, nil
}

// newSandbox makes a sandbox with its network. With an error, it returns what there is, which may be nil.
func (s *Server) newSandbox(config *runtimeapi.PodSandboxConfig) (*sandbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, dir, err := s.newID("pod")
	if err != nil {
		return nil, err
	}
	b := &sandbox{id: id, dir: dir, config: config, created: time.Now()}
	if err := os.WriteFile(b.resolvConf(), []byte(resolvConf(b.config.GetDnsConfig())), 0o644); err != nil {
		return b, err
	}
	if b.onNode() {
		return b, nil
	}
	b.network = &network{link: "to-" + id}
	if s.config.CNI != nil {
		return b, s.makeNamespace(b)
	}
	return b, s.makeNetwork(b)
}

// discard gives back what a sandbox has that did not start. The caller holds the lock.
func (s *Server) discard(b *sandbox) error {
	if b == nil {
		return nil
	}
	return errors.Join(s.stopSandbox(b), os.RemoveAll(b.dir))
}

// onNode reports whether the Pod is in the node's network.
func (b *sandbox) onNode() bool {
	options := b.config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	return options.GetNetwork() == runtimeapi.NamespaceMode_NODE
}

func (b *sandbox) resolvConf() string { return filepath.Join(b.dir, "resolv.conf") }

// resolvConf is the file of resolv.conf(5).
func resolvConf(c *runtimeapi.DNSConfig) string {
	var text strings.Builder
	for _, server := range c.GetServers() {
		text.WriteString("nameserver " + server + "\n")
	}
	for name, words := range map[string][]string{"search": c.GetSearches(), "options": c.GetOptions()} {
		if len(words) > 0 {
			text.WriteString(name + " " + strings.Join(words, " ") + "\n")
		}
	}
	return text.String()
}

func (s *Server) makeNetwork(b *sandbox) (err error) {
	n := b.network
	if n.Network, err = namespace.New(); err != nil {
		return err
	}
	onNode := []string{
		"link add " + n.link + " type veth peer name eth0 netns " + n.Path(),
		"address add " + gateway4 + "/32 dev " + n.link,
		"address add " + gateway6 + "/64 dev " + n.link + " nodad",
		"link set " + n.link + " up",
	}
	inPod := []string{"link set lo up", "link set eth0 up"}
	for _, a := range s.addresses {
		addr, err := a.allocate()
		if err != nil {
			return err
		}
		n.addresses = append(n.addresses, addr)
		host := netip.PrefixFrom(addr, addr.BitLen()).String()
		onNode = append(onNode, "route add "+host+" dev "+n.link)
		if addr.Is4() {
			inPod = append(inPod, "address add "+host+" dev eth0", "route add "+gateway4+" dev eth0",
				"route add default via "+gateway4)
		} else {
			inPod = append(inPod, "address add "+host+" dev eth0 nodad", "route add default via "+gateway6+" dev eth0")
		}
	}
	if err := namespace.IP(onNode...); err != nil {
		return err
	}
	return n.Do(func() error {
		if err := b.setSysctls(); err != nil {
			return err
		}
		return namespace.IP(inPod...)
	})
}

// setSysctls sets those of the Pod in the caller's namespace.
func (b *sandbox) setSysctls() error {
	settings := maps.Clone(sysctls)
	maps.Copy(settings, b.config.GetLinux().GetSysctls())
	for name, value := range settings {
		file := filepath.Join("/proc/sys", strings.ReplaceAll(name, ".", "/"))
		if err := os.WriteFile(file, []byte(value), 0); err != nil {
			return err
		}
	}
	return nil
}

// StopPodSandbox ends the containers of a Pod and gives its network back.
func (s *Server) StopPodSandbox(
	_ context.Context, r *runtimeapi.StopPodSandboxRequest,
) (*runtimeapi.StopPodSandboxResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.sandboxes[r.GetPodSandboxId()]
	if !ok {
		return &runtimeapi.StopPodSandboxResponse{}, nil
	}
	return &runtimeapi.StopPodSandboxResponse{}, s.stopSandbox(b)
}

// stopSandbox is idempotent. The caller holds the lock.
func (s *Server) stopSandbox(b *sandbox) error {
	for _, c := range s.containers {
		if c.sandbox == b {
			c.stop(0)
		}
	}
	b.stopped = true
	n := b.network
	if n == nil {
		return nil
	}
	var err error
	if n.Network != nil {
		err = errors.Join(s.disconnect(b), n.unmount(), n.Close())
	}
	b.network = nil
	if s.config.CNI == nil {
		for i, addr := range n.addresses {
			s.addresses[i].release(addr)
		}
	}
	return err
}

// RemovePodSandbox forgets a Pod.
func (s *Server) RemovePodSandbox(
	ctx context.Context, r *runtimeapi.RemovePodSandboxRequest,
) (*runtimeapi.RemovePodSandboxResponse, error) {
	if _, err := s.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: r.GetPodSandboxId()}); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	if b, ok := s.sandboxes[r.GetPodSandboxId()]; ok {
		for _, c := range s.containers {
			if c.sandbox == b {
				errs = append(errs, s.removeContainer(c))
			}
		}
		errs = append(errs, os.RemoveAll(b.dir))
		delete(s.sandboxes, b.id)
	}
	return &runtimeapi.RemovePodSandboxResponse{}, errors.Join(errs...)
}

func (b *sandbox) state() runtimeapi.PodSandboxState {
	if b.stopped {
		return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	}
	return runtimeapi.PodSandboxState_SANDBOX_READY
}

// PodSandboxStatus describes a Pod.
func (s *Server) PodSandboxStatus(
	_ context.Context, r *runtimeapi.PodSandboxStatusRequest,
) (*runtimeapi.PodSandboxStatusResponse, error) {
	b, err := find(s, s.sandboxes, r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	of := &runtimeapi.PodSandboxStatus{
		Id: b.id, Metadata: b.config.GetMetadata(), State: b.state(), CreatedAt: nanoseconds(b.created),
		Labels: b.config.GetLabels(), Annotations: b.config.GetAnnotations(),
		Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{
			Options: b.config.GetLinux().GetSecurityContext().GetNamespaceOptions(),
		}},
		Network: &runtimeapi.PodSandboxNetworkStatus{},
	}
	if b.network != nil {
		for i, addr := range b.network.addresses {
			if i == 0 {
				of.Network.Ip = addr.String()
			} else {
				of.Network.AdditionalIps = append(of.Network.AdditionalIps, &runtimeapi.PodIP{Ip: addr.String()})
			}
		}
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: of}, nil
}

// ListPodSandbox lists Pods.
func (s *Server) ListPodSandbox(
	_ context.Context, r *runtimeapi.ListPodSandboxRequest,
) (*runtimeapi.ListPodSandboxResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, all := r.GetFilter(), &runtimeapi.ListPodSandboxResponse{}
	for _, b := range s.sandboxes {
		if f.GetId() != "" && f.GetId() != b.id || f.GetState() != nil && f.GetState().GetState() != b.state() ||
			!selects(f.GetLabelSelector(), b.config.GetLabels()) {
			continue
		}
		all.Items = append(all.Items, &runtimeapi.PodSandbox{
			Id: b.id, Metadata: b.config.GetMetadata(), State: b.state(), CreatedAt: nanoseconds(b.created),
			Labels: b.config.GetLabels(), Annotations: b.config.GetAnnotations(),
		})
	}
	return all, nil
}

// selects reports whether the labels have all that the selector has.
func selects(selector, labels map[string]string) bool {
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return true
}
