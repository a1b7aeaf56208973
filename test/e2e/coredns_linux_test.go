package e2e

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/e2e/container"
)

// external is a name that is not the cluster's.
var external = hasAddress("www.example.", "203.0.113.7")

// TestCoreDNSDeployment: installers' Deployments of CoreDNS run with another
// image and no other change. What a node would do is done by the test: the
// container with its volumes, account, privileges and network; the probes; a
// ConfigMap that changes; the order to stop.
func TestCoreDNSDeployment(t *testing.T) {
	if err := container.Check(); err != nil {
		t.Skip(err)
	}
	image, err := container.BuildImage(t.Context(), repository)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := image.Remove(); err != nil {
			t.Error(err)
		}
	})
	tests := map[string]struct {
		installed *installed
		ttl       uint32
		more      []query
		lameduck  bool
		// change of the Corefile, after which the TTL is 17.
		old, changed string
	}{
		"kubeadm": {installed: byKubeadm(t), ttl: 30, lameduck: true, old: "ttl 30", changed: "ttl 17"},
		"k3s": {installed: byK3s(t), ttl: 5, more: []query{hasAddress("node-1.", "192.0.2.1")},
			old: "pods insecure", changed: "pods insecure\n ttl 17"},
	}
	for installer, tt := range tests {
		t.Run(installer, func(t *testing.T) {
			a := newCluster(t)
			tt.installed.install(t, a.Client())
			pod := startPod(t, a, tt.installed, image)
			queries := slices.Concat(everything(), tt.more, []query{external, hasAddress("kubernetes.default.svc.cluster.local.", a.ServiceAddress().String())})
			pod.await(queries...)
			for _, q := range queries {
				if err := pod.checkOver("tcp", q); err != nil {
					t.Errorf("over TCP: %v", err)
				}
			}
			pod.awaitTTL(tt.ttl)
			pod.awaitProbes(t)
			pod.wantMetrics(t)

			config := maps.Clone(tt.installed.config.Data)
			config["Corefile"] = strings.Replace(config["Corefile"], tt.old, tt.changed, 1)
			pod.volumes["coredns"].write(t, config)
			pod.awaitTTL(17)
			if custom := pod.volumes["coredns-custom"]; custom != "" {
				custom.write(t, map[string]string{"old.override": "rewrite name exact old.example www.example\n"})
				pod.await(hasAddress("old.example.", "203.0.113.7"))
			}
			pod.stopAsKubelet(t, tt.lameduck)
			for _, bad := range []string{"kind=missing", "forbidden", "read-only file system"} {
				if strings.Contains(pod.Logged(), bad) {
					t.Errorf("%q is in the log:\n%s", bad, pod.Logged())
				}
			}
		})
	}
}

// pod is portolan in CoreDNS' Pod.
type pod struct {
	portolan
	container *corev1.Container
	volumes   map[string]volume // by the ConfigMap's name
}

// accountDir is where a Pod finds its account.
const accountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// startPod does what a node does with the Pods of a Deployment. The API server
// is where its Service is, and an upstream on the node's address.
func startPod(t *testing.T, a *applier, i *installed, image *container.Image) *pod {
	t.Helper()
	network, err := container.NewNetwork(a.ServiceAddress().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { network.Close() })
	api, err := network.Listen(net.JoinHostPort(a.ServiceAddress().String(), "443"))
	if err != nil {
		t.Fatal(err)
	}
	newTCPProxyOn(t, api, a.Address())
	startUpstream(t, network)

	p := &pod{container: i.container(t), volumes: make(map[string]volume)}
	p.t, p.addr, p.dial = t, net.JoinHostPort(container.PodAddress, "53"), network.Dial
	security := p.container.SecurityContext
	c := container.Config{
		Root:            image.Root,
		Mounts:          append(p.mounts(t, i), nodeMounts(t, a, i)...),
		Args:            append([]string{image.Entrypoint}, p.container.Args...),
		Env:             []string{"PATH=/", "KUBERNETES_SERVICE_HOST=" + a.ServiceAddress().String(), "KUBERNETES_SERVICE_PORT=443"},
		User:            image.User,
		NoNewPrivileges: !*security.AllowPrivilegeEscalation,
		Network:         network,
	}
	for _, name := range security.Capabilities.Add {
		c.Capabilities = append(c.Capabilities, string(name))
	}
	process, err := c.Process()
	if err != nil {
		t.Fatal(err)
	}
	p.Process = *process
	p.Log = filepath.Join(t.TempDir(), "log")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.end)
	p.waitLog("msg=serving")
	return p
}

// mounts are those of the container. A ConfigMap that is not there is an empty
// directory, if it is optional.
func (p *pod) mounts(t *testing.T, i *installed) (mounts []container.Mount) {
	t.Helper()
	for _, m := range p.container.VolumeMounts {
		at := slices.IndexFunc(i.deployment.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		source := i.deployment.Spec.Template.Spec.Volumes[at].ConfigMap
		dir := volume(t.TempDir())
		if source.Name == i.config.Name {
			dir.write(t, i.config.Data)
		}
		p.volumes[source.Name] = dir
		mounts = append(mounts, container.Mount{Source: string(dir), Target: m.MountPath})
	}
	return mounts
}

// nodeMounts are what every container gets: the resolv.conf of "dnsPolicy:
// Default", and the account.
func nodeMounts(t *testing.T, a *applier, i *installed) []container.Mount {
	t.Helper()
	token, err := a.Client().CoreV1().ServiceAccounts(i.account.Namespace).
		CreateToken(t.Context(), i.account.Name, new(authenticationv1.TokenRequest), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	account := volume(t.TempDir())
	account.write(t, map[string]string{
		"token": token.Status.Token, "ca.crt": string(a.RESTConfig().CAData), "namespace": i.account.Namespace,
	})
	resolvConf := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(resolvConf, []byte("nameserver "+container.NodeAddress+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return []container.Mount{{Source: resolvConf, Target: "/etc/resolv.conf"}, {Source: string(account), Target: accountDir}}
}

// volume is the directory of a ConfigMap's or an account's volume.
type volume string

// write writes all files at once, as the kubelet does (k8s.io/kubernetes,
// pkg/volume/util/atomic_writer.go): into a new directory, which the link ..data
// leads to from one moment to the next; links through it are the files.
func (v volume) write(t *testing.T, files map[string]string) {
	t.Helper()
	try := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := string(v)
	try(os.Chmod(dir, 0o755))
	made, err := os.MkdirTemp(dir, "..") //nolint:usetesting // as the kubelet names it
	try(err)
	try(os.Chmod(made, 0o755))
	for name, text := range files {
		try(os.WriteFile(filepath.Join(made, name), []byte(text), 0o644))
	}
	before, _ := os.Readlink(filepath.Join(dir, "..data")) // there is none at first
	try(os.Symlink(filepath.Base(made), filepath.Join(dir, "..data_tmp")))
	try(os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	for name := range files {
		if _, err := os.Lstat(filepath.Join(dir, name)); os.IsNotExist(err) {
			try(os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)))
		}
	}
	if before != "" {
		try(os.RemoveAll(filepath.Join(dir, before)))
	}
}

// startUpstream answers the name external over UDP, on the node, and denies all
// others.
func startUpstream(t *testing.T, network *container.Network) {
	t.Helper()
	conn, err := network.ListenPacket(net.JoinHostPort(container.NodeAddress, "53"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		buf := make([]byte, dnswire.MaxMessage)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo(upstreamAnswer(buf[:n]), from) // it is asked again
		}
	}()
}

// upstreamAnswer has the form of RFC 1035, sections 4.1.1 to 4.1.4.
func upstreamAnswer(query []byte) []byte {
	end := dnswire.HeaderLen
	var labels []string
	for query[end] != 0 {
		next := end + 1 + int(query[end])
		labels = append(labels, string(query[end+1:next])+".")
		end = next
	}
	end += 5                                                                 // the root, type and class
	header := []byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0} // QR, RD, RA; one question
	answer := append(header, query[dnswire.HeaderLen:end]...)
	if !strings.EqualFold(strings.Join(labels, ""), external.name) || query[end-3] != byte(dnswire.TypeA) {
		answer[3] |= byte(dnswire.NXDomain)
		return answer
	}
	answer[7] = 1 // record: the name of the question, A, IN, a TTL of 60
	answer = append(answer, 0xc0, byte(dnswire.HeaderLen), 0, 1, 0, 1, 0, 0, 0, 60, 0, 4)
	return append(answer, net.ParseIP(external.answer[0]).To4()...)
}

// awaitTTL waits until a record has this TTL.
func (p *pod) awaitTTL(want uint32) {
	p.t.Helper()
	await.NoError(p.t, func() error {
		m, err := p.ask(services[0])
		if err != nil {
			return err
		}
		if len(m.Answer) != 1 || m.Answer[0].TTL != want {
			return fmt.Errorf("answer:\n%swant TTL %d", m, want)
		}
		return nil
	})
}

// get asks for a page from the node, over a new connection.
func (p *pod) get(port, path string) (status int, body string) {
	client := http.Client{Timeout: await.Answer, Transport: &http.Transport{DialContext: p.dial, DisableKeepAlives: true}}
	response, err := client.Get("http://" + net.JoinHostPort(container.PodAddress, port) + path)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
}

func (p *pod) awaitProbes(t *testing.T) {
	t.Helper()
	for _, probe := range []*corev1.Probe{p.container.LivenessProbe, p.container.ReadinessProbe} {
		await.NoError(t, func() error {
			if status, body := p.get(portOf(p.container, probe), probe.HTTPGet.Path); status != http.StatusOK {
				return fmt.Errorf("%s: %d %s", probe.HTTPGet.Path, status, body)
			}
			return nil
		})
	}
}

// wantMetrics: Prometheus finds CoreDNS' metrics at the port with that name.
func (p *pod) wantMetrics(t *testing.T) {
	t.Helper()
	at := slices.IndexFunc(p.container.Ports, func(c corev1.ContainerPort) bool { return c.Name == "metrics" })
	_, body := p.get(strconv.Itoa(int(p.container.Ports[at].ContainerPort)), "/metrics")
	for _, want := range []string{
		`coredns_dns_requests_total{family="1",proto="udp",server="dns://:53",type="A",view="",zone="cluster.local."} `,
		`coredns_dns_responses_total{plugin="",rcode="NXDOMAIN",server="dns://:53",view="",zone="cluster.local."} `,
		`coredns_cache_entries{`,
		`coredns_proxy_request_duration_seconds_count{proxy_name="forward",rcode="NOERROR",to="` + container.NodeAddress + `:53"} `,
	} {
		if !strings.Contains(body, "\n"+want) {
			t.Errorf("/metrics lacks %s:\n%s", want, body)
		}
	}
}

// stopAsKubelet asks the process to end. With a time of lameduck it answers
// while it is not ready any more.
func (p *pod) stopAsKubelet(t *testing.T, lameduck bool) {
	t.Helper()
	p.Signal(syscall.SIGTERM)
	if lameduck {
		probe := p.container.ReadinessProbe
		await.NoError(t, func() error {
			if status, _ := p.get(portOf(p.container, probe), probe.HTTPGet.Path); status == http.StatusOK {
				return fmt.Errorf("%s after SIGTERM: %d", probe.HTTPGet.Path, status)
			}
			return nil
		})
		if err := p.check(services[0]); err != nil {
			t.Errorf("after SIGTERM: %v", err)
		}
	}
	await.NoError(t, func() error {
		if p.Running() {
			return fmt.Errorf("it runs after SIGTERM:\n%s", p.LastLogged())
		}
		return nil
	})
}
