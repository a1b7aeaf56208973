// Package controlplane runs a real Kubernetes control plane, by default on loopback: etcd,
// kube-apiserver and, where asked for, kube-controller-manager, built from
// their modules. There is no kubelet: Pods are objects only, unless the test adds nodes.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"portolan.dev/portolan/test/e2e/process"
)

// DefaultServiceCIDRs are the ranges of ClusterIPs: those of most installers.
const DefaultServiceCIDRs = "10.96.0.0/12,fd00:10:96::/112"

// Options configure a control plane. The zero value is usable.
type Options struct {
	// ControllerManager runs the controllers that make EndpointSlices, delete
	// what is in deleted namespaces and make service accounts.
	ControllerManager bool
	// Without are names of controllers that do not run.
	Without []string
	// ControllerFlags follow those that kube-controller-manager always gets.
	ControllerFlags []string
	// Address is the IPv4 address on which the API server listens; 127.0.0.1 when it is the zero
	// value. If it is not of loopback, the Service of the API server has it as its endpoint.
	Address netip.Addr
	// ServiceCIDRs are DefaultServiceCIDRs when empty.
	ServiceCIDRs string
	// APIServerFlags follow those that kube-apiserver always gets.
	APIServerFlags []string
	// Log receives messages about builds; nil discards them.
	Log *slog.Logger
}

// ControlPlane is a running control plane. Its methods must not be called concurrently.
type ControlPlane struct {
	options   Options
	binaries  Binaries
	dir       string // data, keys, logs
	authority *authority
	port      *port
	// serviceAddress is the ClusterIP of the API server's own Service.
	serviceAddress netip.Addr
	config         *rest.Config
	client         *kubernetes.Clientset
	etcd           *clientv3.Client
	users          int // made

	etcdProcess, apiServer, controllers process.Process
}

// Start starts a control plane and waits until it is ready, a few seconds,
// or until ctx is done. What it started ends with Close, and with this process.
func Start(ctx context.Context, options Options) (*ControlPlane, error) {
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	if options.ServiceCIDRs == "" {
		options.ServiceCIDRs = DefaultServiceCIDRs
	}
	if !options.Address.IsValid() {
		options.Address = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	binaries, err := Prepare(ctx, options.Log)
	if err != nil {
		return nil, err
	}
	ranges, err := netip.ParsePrefix(strings.Split(options.ServiceCIDRs, ",")[0])
	if err != nil {
		return nil, fmt.Errorf("control plane: %w", err)
	}
	c := &ControlPlane{options: options, binaries: binaries, serviceAddress: ranges.Masked().Addr().Next()}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("control plane: %w", err), c.Close())
	}
	return c, nil
}

func (c *ControlPlane) start(ctx context.Context) (err error) {
	// Short, because the path of a socket may have 108 octets.
	if c.dir, err = os.MkdirTemp("", "portolan-e2e-"); err != nil {
		return err
	}
	if c.port, err = reservePort(c.options.Address); err != nil {
		return err
	}
	if err := c.writeKeys(); err != nil {
		return err
	}
	if err := c.makeClients(); err != nil {
		return err
	}
	c.describeProcesses()
	if err := c.startEtcd(ctx); err != nil {
		return err
	}
	if err := c.StartAPIServer(ctx); err != nil {
		return err
	}
	if c.options.ControllerManager {
		return c.controllers.Start()
	}
	return nil
}

func (c *ControlPlane) file(name string) string { return filepath.Join(c.dir, name) }

func (c *ControlPlane) etcdURL() string { return "unix://" + c.file("etcd.sock") }

func (c *ControlPlane) describeProcesses() {
	describe := func(program string, args []string) process.Process {
		return process.Process{Path: c.binaries.path(program), Args: args, Log: c.file(program + ".log")}
	}
	c.etcdProcess = describe(etcd, c.etcdFlags())
	c.apiServer = describe(apiServer, c.apiServerFlags())
	c.controllers = describe(controllerManager, c.controllerFlags())
}

func (c *ControlPlane) etcdFlags() []string {
	return []string{
		"--data-dir=" + c.file("etcd"), "--log-level=warn",
		"--listen-client-urls=" + c.etcdURL(),
		// No path of a socket may be told to others; nobody listens, and there
		// are no others.
		"--advertise-client-urls=http://127.0.0.1:0", "--listen-peer-urls=http://127.0.0.1:0",
		"--unsafe-no-fsync", // it is thrown away
	}
}

func (c *ControlPlane) apiServerFlags() []string {
	host, port, _ := net.SplitHostPort(c.port.addr)
	flags := []string{
		"--etcd-servers=" + c.etcdURL(),
		"--bind-address=" + host,
		"--secure-port=" + port,
		"--permit-port-sharing",
		"--advertise-address=" + host,
		"--tls-cert-file=" + c.file("server.crt"),
		"--tls-private-key-file=" + c.file("server.key"),
		"--client-ca-file=" + c.file("ca.crt"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + c.file("accounts.key"),
		"--service-account-signing-key-file=" + c.file("accounts.key"),
		"--authorization-mode=RBAC",
		"--allow-privileged", // as kubeadm has it
		"--service-cluster-ip-range=" + c.options.ServiceCIDRs,
	}
	if c.options.Address.IsLoopback() {
		flags = append(flags, "--endpoint-reconciler-type=none") // no endpoint is on loopback
	}
	if !c.options.ControllerManager {
		// Nobody makes the accounts that Pods would wait for.
		flags = append(flags, "--disable-admission-plugins=ServiceAccount")
	}
	return append(flags, c.options.APIServerFlags...)
}

func (c *ControlPlane) controllerFlags() []string {
	controllers := []string{
		"endpoints-controller", "endpointslice-controller", "endpointslice-mirroring-controller",
		"namespace-controller", "serviceaccount-controller", "root-ca-certificate-publisher-controller",
		"service-cidr-controller", "deployment-controller", "replicaset-controller", "statefulset-controller",
		"garbage-collector-controller",
	}
	controllers = slices.DeleteFunc(controllers,
		func(name string) bool { return slices.Contains(c.options.Without, name) })
	return append([]string{
		"--kubeconfig=" + c.Kubeconfig(), "--leader-elect=false", "--secure-port=0",
		"--controllers=" + strings.Join(controllers, ","),
		"--service-account-private-key-file=" + c.file("accounts.key"), "--root-ca-file=" + c.file("ca.crt"),
	}, c.options.ControllerFlags...)
}

// StartAPIServer starts the API server, unless it runs, on the address it had
// before, and waits until it is ready.
func (c *ControlPlane) StartAPIServer(ctx context.Context) error {
	if c.apiServer.Running() {
		return nil
	}
	if err := c.apiServer.Start(); err != nil {
		return err
	}
	return c.apiServer.WaitReady(ctx, func(ctx context.Context) error {
		return c.client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

func (c *ControlPlane) startEtcd(ctx context.Context) error {
	if err := c.etcdProcess.Start(); err != nil {
		return err
	}
	return c.etcdProcess.WaitReady(ctx, func(ctx context.Context) error {
		_, err := c.etcd.Get(ctx, "/registry")
		return err
	})
}

// StopAPIServer ends the API server, with SIGTERM first, and waits for its end. etcd
// goes on.
func (c *ControlPlane) StopAPIServer() {
	const grace = 3 * time.Second
	c.apiServer.Stop(grace)
}

// APIServerID is the ID of the API server's process.
func (c *ControlPlane) APIServerID() int { return c.apiServer.ID() }

// PauseAPIServer suspends the API server: it keeps its connections and answers nothing.
func (c *ControlPlane) PauseAPIServer() { c.apiServer.Signal(syscall.SIGSTOP) }

// ResumeAPIServer resumes a suspended API server.
func (c *ControlPlane) ResumeAPIServer() { c.apiServer.Signal(syscall.SIGCONT) }

// Address is where the API server listens.
func (c *ControlPlane) Address() string { return c.port.addr }

// ServiceAddress is the ClusterIP of the API server's own Service, which its
// certificate is for, too. Nothing listens there.
func (c *ControlPlane) ServiceAddress() netip.Addr { return c.serviceAddress }

// KubeProxy is the file of the kube-proxy of the control plane's version. None runs.
func (c *ControlPlane) KubeProxy() string { return c.binaries.KubeProxy() }

// Client returns an administrator's client without rate limits.
func (c *ControlPlane) Client() *kubernetes.Clientset { return c.client }

// RESTConfig is what Client is made from, for clients of other kinds.
func (c *ControlPlane) RESTConfig() *rest.Config { return rest.CopyConfig(c.config) }

// Etcd returns a client of the API server's storage, to change it without the API
// server. Keys begin with "/registry/".
func (c *ControlPlane) Etcd() *clientv3.Client { return c.etcd }

// Compact removes all revisions before the current one from etcd.
func (c *ControlPlane) Compact(ctx context.Context) error {
	now, err := c.etcd.Get(ctx, "/registry", clientv3.WithCountOnly())
	if err != nil {
		return fmt.Errorf("compact: %w", err)
	}
	if _, err := c.etcd.Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		return fmt.Errorf("compact: %w", err)
	}
	return nil
}

// Close ends all processes of the control plane and removes its files.
func (c *ControlPlane) Close() error {
	// Their data is removed, so they need no orderly end.
	for _, p := range []*process.Process{&c.controllers, &c.apiServer, &c.etcdProcess} {
		p.Stop(0)
	}
	var errs []error
	if c.etcd != nil {
		errs = append(errs, c.etcd.Close())
	}
	if c.port != nil {
		errs = append(errs, c.port.Close())
	}
	if c.dir != "" {
		errs = append(errs, os.RemoveAll(c.dir))
	}
	return errors.Join(errs...)
}
