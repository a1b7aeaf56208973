package kubeproxy

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"portolan.dev/portolan/internal/config/key"
	"portolan.dev/portolan/internal/migrate"
	"portolan.dev/portolan/internal/proxy/settings"
)

// The modes of kube-proxy on Linux, and Windows' one.
const (
	modeIPTables    = "iptables"
	modeIPVS        = "ipvs"
	modeNFTables    = "nftables"
	modeKernelspace = "kernelspace"
)

// DebugVerbosity is the verbosity, a flag and a field of kube-proxy, from which on the log has
// level debug: klog calls 4 debug level (Kubernetes, "Logging Conventions").
const DebugVerbosity = 4

// translate translates all fields that become settings. Its error joins a *key.Error for each field.
func (t *translator) translate() error {
	if v := t.given.APIVersion; v != apiVersion { // fields of others may mean something else
		return key.Errorf("apiVersion", "%q is not %s, the only version that is read", v, apiVersion)
	}
	if v := t.given.Kind; v != kind {
		return key.Errorf("kind", "%q is not %s", v, kind)
	}
	t.log()
	t.local()
	t.conntrack()
	return errors.Join(t.mode(), t.client(), t.addresses())
}

// from records that settings come from a field.
func (t *translator) from(field string, keys ...string) {
	for _, k := range keys {
		t.fields[k] = field
		t.Origins[k] = fmt.Sprintf("%s:%d", t.path, t.doc.Line(field))
	}
}

// mode translates the mode and the section of the mode.
func (t *translator) mode() error {
	c, p := &t.given, &t.Config.Proxy
	section, period := c.NFTables, c.NFTables.SyncPeriod
	name := modeNFTables
	switch c.Mode {
	case modeNFTables:
	case "", modeIPTables, modeIPVS:
		section = nftables{MasqueradeBit: c.IPTables.MasqueradeBit, MasqueradeAll: c.IPTables.MasqueradeAll}
		name, period = modeIPTables, c.IPTables.SyncPeriod
		text := cmp.Or(c.Mode, modeIPTables) + " becomes nftables"
		if c.Mode != modeIPVS {
			text += ": node ports are not reached at 127.0.0.1"
		}
		t.note(migrate.Differs, "mode", text)
	case modeKernelspace:
		return key.Errorf("mode", "%s is for Windows", c.Mode)
	default:
		return key.Errorf("mode", "%q is not %s, %s or %s", c.Mode, modeIPTables, modeIPVS, modeNFTables)
	}
	p.MasqueradeBit, p.MasqueradeAll = section.MasqueradeBit, section.MasqueradeAll
	t.from(name+".masqueradeBit", "proxy.masqueradeBit")
	t.from(name+".masqueradeAll", "proxy.masqueradeAll")
	if c.Mode == modeIPVS {
		name, period = modeIPVS, c.IPVS.SyncPeriod
	}
	if period < 0 {
		return key.Errorf(name+".syncPeriod", "%s is less than 0s", time.Duration(period))
	}
	p.HealthLimit = 2 * cmp.Or(period, key.Duration(defaultSyncPeriod))
	t.from(name+".syncPeriod", "proxy.healthLimit")
	return nil
}

// client translates the connection to the API server.
func (t *translator) client() error {
	c, k := &t.given.ClientConnection, &t.Config.Kubernetes
	if c.QPS < 0 {
		return key.Errorf("clientConnection.qps", "%v: there is always a limit; give a number of 1 or more", c.QPS)
	}
	k.Kubeconfig = c.Kubeconfig
	k.QPS, k.Burst = int(math.Ceil(float64(cmp.Or(c.QPS, defaultQPS)))), cmp.Or(c.Burst, defaultBurst)
	t.from("clientConnection.kubeconfig", "kubernetes.kubeconfig")
	t.from("clientConnection.qps", "kubernetes.qps")
	t.from("clientConnection.burst", "kubernetes.burst")
	return nil
}

func (t *translator) log() {
	c, l := &t.given.Logging, &t.Config.Log
	l.Format = cmp.Or(c.Format, l.Format)
	if c.Verbosity >= DebugVerbosity {
		l.Level = "debug"
	}
	t.from("logging.format", "log.format")
	t.from("logging.verbosity", "log.level")
}

// addresses translates the node's name and addresses, and those of the servers.
func (t *translator) addresses() error {
	c, p := &t.given, &t.Config.Proxy
	p.NodeName = strings.ToLower(strings.TrimSpace(c.HostnameOverride))
	t.from("hostnameOverride", "proxy.nodeName")
	bind, err := netip.ParseAddr(cmp.Or(c.BindAddress, netip.IPv4Unspecified().String()))
	if err != nil {
		return key.Errorf("bindAddress", "%q is not an address", c.BindAddress)
	}
	all, loopback := netip.IPv4Unspecified(), netip.MustParseAddr("127.0.0.1")
	if bind.Is6() {
		all, loopback = netip.IPv6Unspecified(), netip.IPv6Loopback()
	}
	p.Healthz = withPort(cmp.Or(c.HealthzBindAddress, all.String()), healthzPort)
	t.Config.Admin.Listen = withPort(cmp.Or(c.MetricsBindAddress, loopback.String()), metricsPort)
	t.Config.Admin.PProf = c.EnableProfiling
	t.from("healthzBindAddress", "proxy.healthz")
	t.from("metricsBindAddress", "admin.listen")
	t.from("enableProfiling", "admin.pprof")
	t.nodePorts(bind)
	return nil
}

// withPort returns an address with a port, which it has already or not.
func withPort(addr string, port int) string {
	if _, err := netip.ParseAddr(addr); err != nil {
		return addr
	}
	return net.JoinHostPort(addr, strconv.Itoa(port))
}

// nodePorts translates the addresses for node ports. bind is kube-proxy's bindAddress.
func (t *translator) nodePorts(bind netip.Addr) {
	const setting = "proxy.nodePortAddresses"
	p := &t.Config.Proxy
	addrs, primary := t.given.NodePortAddresses, settings.Default().NodePortAddresses
	t.from("nodePortAddresses", setting)
	switch {
	case len(addrs) == 0 && t.given.Mode == modeNFTables:
		addrs = primary
	case len(addrs) == 0:
		addrs = []string{"0.0.0.0/0", "::/0"}
	}
	if slices.Equal(addrs, primary) && !bind.IsUnspecified() {
		addrs = []string{netip.PrefixFrom(bind, bind.BitLen()).String()}
		t.from("bindAddress", setting)
		t.note(migrate.Differs, "bindAddress", "node ports are reached at "+bind.String()+
			" only, not at the Node's address of the other family; proxy.nodePortAddresses takes ranges of both")
	}
	p.NodePortAddresses = addrs
}

// local translates how packets from Pods are recognized.
func (t *translator) local() {
	c, d := &t.given, &t.Config.Proxy.DetectLocal
	const setting = "proxy.detectLocal."
	d.Mode = cmp.Or(c.DetectLocalMode, d.Mode)
	t.from("detectLocalMode", setting+"mode")
	if c.ClusterCIDR != "" {
		d.ClusterCIDRs = strings.Split(c.ClusterCIDR, ",")
	}
	t.from("clusterCIDR", setting+"clusterCIDRs")
	switch d.Mode {
	case settings.BridgeInterface:
		d.Interface = c.DetectLocal.BridgeInterface
		t.from("detectLocal.bridgeInterface", setting+"interface")
	case settings.InterfaceNamePrefix:
		d.Interface = c.DetectLocal.InterfaceNamePrefix
		t.from("detectLocal.interfaceNamePrefix", setting+"interface")
	}
}

func (t *translator) conntrack() {
	c, s := &t.given.Conntrack, &t.Config.Proxy.Conntrack
	s.MaxPerCore, s.Min, s.TCPBeLiberal = c.MaxPerCore, c.Min, c.TCPBeLiberal
	s.TCPEstablished, s.TCPCloseWait = c.TCPEstablishedTimeout, c.TCPCloseWaitTimeout
	s.UDP, s.UDPStream = c.UDPTimeout, c.UDPStreamTimeout
	for i := range fields {
		if name, ok := strings.CutPrefix(fields[i].Path, "conntrack."); ok {
			t.from("conntrack."+name, fields[i].Key)
		}
	}
}
