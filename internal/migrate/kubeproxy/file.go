package kubeproxy

import (
	"fmt"
	"strconv"
	"time"

	"portolan.dev/portolan/internal/config/key"
)

// configuration is a KubeProxyConfiguration. Fields are described by Fields.
type configuration struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`

	FeatureGates                map[string]bool  `yaml:"featureGates"`
	ClientConnection            clientConnection `yaml:"clientConnection"`
	Logging                     logging          `yaml:"logging"`
	HostnameOverride            string           `yaml:"hostnameOverride"`
	BindAddress                 string           `yaml:"bindAddress"`
	HealthzBindAddress          string           `yaml:"healthzBindAddress"`
	MetricsBindAddress          string           `yaml:"metricsBindAddress"`
	BindAddressHardFail         bool             `yaml:"bindAddressHardFail"`
	EnableProfiling             bool             `yaml:"enableProfiling"`
	ShowHiddenMetricsForVersion string           `yaml:"showHiddenMetricsForVersion"`
	Mode                        string           `yaml:"mode"`
	IPTables                    iptables         `yaml:"iptables"`
	IPVS                        ipvs             `yaml:"ipvs"`
	NFTables                    nftables         `yaml:"nftables"`
	Winkernel                   winkernel        `yaml:"winkernel"`
	DetectLocalMode             string           `yaml:"detectLocalMode"`
	DetectLocal                 detectLocal      `yaml:"detectLocal"`
	ClusterCIDR                 string           `yaml:"clusterCIDR"`
	NodePortAddresses           []string         `yaml:"nodePortAddresses"`
	OOMScoreAdj                 int              `yaml:"oomScoreAdj"`
	Conntrack                   conntrack        `yaml:"conntrack"`
	ConfigSyncPeriod            key.Duration     `yaml:"configSyncPeriod"`
	PortRange                   string           `yaml:"portRange"`
	WindowsRunAsService         bool             `yaml:"windowsRunAsService"`
}

type clientConnection struct {
	Kubeconfig         string `yaml:"kubeconfig"`
	AcceptContentTypes string `yaml:"acceptContentTypes"`
	ContentType        string `yaml:"contentType"`
	QPS                number `yaml:"qps"`
	Burst              int    `yaml:"burst"`
}

type logging struct {
	Format string `yaml:"format"`
	// FlushFrequency is a duration, or a number of nanoseconds.
	FlushFrequency string        `yaml:"flushFrequency"`
	Verbosity      int           `yaml:"verbosity"`
	VModule        []vmodule     `yaml:"vmodule"`
	Options        formatOptions `yaml:"options"`
}

type vmodule struct {
	FilePattern string `yaml:"filePattern"`
	Verbosity   int    `yaml:"verbosity"`
}

type formatOptions struct {
	Text outputOptions `yaml:"text"`
	JSON outputOptions `yaml:"json"`
}

type outputOptions struct {
	SplitStream    bool   `yaml:"splitStream"`
	InfoBufferSize string `yaml:"infoBufferSize"`
}

type iptables struct {
	MasqueradeBit      int          `yaml:"masqueradeBit"`
	MasqueradeAll      bool         `yaml:"masqueradeAll"`
	LocalhostNodePorts bool         `yaml:"localhostNodePorts"`
	SyncPeriod         key.Duration `yaml:"syncPeriod"`
	MinSyncPeriod      key.Duration `yaml:"minSyncPeriod"`
}

type ipvs struct {
	SyncPeriod    key.Duration `yaml:"syncPeriod"`
	MinSyncPeriod key.Duration `yaml:"minSyncPeriod"`
	Scheduler     string       `yaml:"scheduler"`
	ExcludeCIDRs  []string     `yaml:"excludeCIDRs"`
	StrictARP     bool         `yaml:"strictARP"`
	TCPTimeout    key.Duration `yaml:"tcpTimeout"`
	TCPFinTimeout key.Duration `yaml:"tcpFinTimeout"`
	UDPTimeout    key.Duration `yaml:"udpTimeout"`
}

type nftables struct {
	MasqueradeBit int          `yaml:"masqueradeBit"`
	MasqueradeAll bool         `yaml:"masqueradeAll"`
	SyncPeriod    key.Duration `yaml:"syncPeriod"`
	MinSyncPeriod key.Duration `yaml:"minSyncPeriod"`
}

type winkernel struct {
	NetworkName           string `yaml:"networkName"`
	SourceVIP             string `yaml:"sourceVip"`
	EnableDSR             bool   `yaml:"enableDSR"`
	RootHNSEndpointName   string `yaml:"rootHnsEndpointName"`
	ForwardHealthCheckVIP bool   `yaml:"forwardHealthCheckVip"`
}

type detectLocal struct {
	BridgeInterface     string `yaml:"bridgeInterface"`
	InterfaceNamePrefix string `yaml:"interfaceNamePrefix"`
}

type conntrack struct {
	MaxPerCore            int          `yaml:"maxPerCore"`
	Min                   int          `yaml:"min"`
	TCPEstablishedTimeout key.Duration `yaml:"tcpEstablishedTimeout"`
	TCPCloseWaitTimeout   key.Duration `yaml:"tcpCloseWaitTimeout"`
	TCPBeLiberal          bool         `yaml:"tcpBeLiberal"`
	UDPTimeout            key.Duration `yaml:"udpTimeout"`
	UDPStreamTimeout      key.Duration `yaml:"udpStreamTimeout"`
}

// number is a number that may have a fraction.
type number float64

// UnmarshalText parses a number.
func (n *number) UnmarshalText(text []byte) error {
	v, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		return fmt.Errorf("%q is not a number", text)
	}
	*n = number(v)
	return nil
}

// defaults returns the defaults of fields for which null and zero differ. Those for which
// kube-proxy takes zero for its default are completed by translate.
func defaults() (c configuration) {
	c.IPTables.MasqueradeBit, c.NFTables.MasqueradeBit = defaultBit, defaultBit
	c.Conntrack.MaxPerCore, c.Conntrack.Min = 32<<10, 128<<10
	c.Conntrack.TCPEstablishedTimeout = key.Duration(24 * time.Hour)
	c.Conntrack.TCPCloseWaitTimeout = key.Duration(time.Hour)
	return c
}

// Defaults of kube-proxy.
const (
	defaultBit        = 14
	defaultSyncPeriod = 30 * time.Second
	defaultQPS        = 5
	defaultBurst      = 10
	healthzPort       = 10256
	metricsPort       = 10249
)
