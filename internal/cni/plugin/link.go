package plugin

import (
	"encoding/json"
	"strings"

	"portolan.dev/portolan/internal/cni/attach"
)

// result is the result of ADD (section 5, "ADD Success").
type result struct {
	Version    string            `json:"cniVersion"`
	Interfaces []resultInterface `json:"interfaces"`
	IPs        []resultIP        `json:"ips"`
	Routes     []resultRoute     `json:"routes"`
	DNS        struct{}          `json:"dns"`
}

type resultInterface struct {
	Name    string `json:"name"`
	MAC     string `json:"mac"`
	MTU     int    `json:"mtu,omitempty"` // since 1.1.0
	Sandbox string `json:"sandbox,omitempty"`
}

type resultIP struct {
	Version   string `json:"version,omitempty"` // before 1.0.0
	Interface int    `json:"interface"`
	Address   string `json:"address"`
	Gateway   string `json:"gateway"`
}

type resultRoute struct {
	Dst string `json:"dst"`
	GW  string `json:"gw"`
}

// link has the agent make the Pod's link, and prints it.
func (c *call) link() error {
	r := attach.Request{
		Verb: attach.Add, Sandbox: c.sandbox(), Ports: c.conf.Runtime.PortMappings, Bandwidth: c.conf.Runtime.Bandwidth,
	}
	made, err := insist(c.conf.Socket, r)
	if err == nil && made == nil {
		err = &attach.RefusedError{Text: "the agent's reply has no result"}
	}
	if err != nil {
		f := failf(codeOf(err), "Pod %s has no network: %v", r.Pod(), err)
		f.Details = hint(err)
		return f
	}
	return json.NewEncoder(c.stdout).Encode(c.result(made))
}

// result returns a result in the configuration's version.
func (c *call) result(made *attach.Result) result {
	host := resultInterface{Name: made.Host.Name, MAC: made.Host.MAC}
	pod := resultInterface{Name: made.Pod.Name, MAC: made.Pod.MAC, Sandbox: c.netNS}
	if c.conf.Version >= "1.1.0" {
		host.MTU, pod.MTU = made.Host.MTU, made.Pod.MTU
	}
	out := result{Version: c.conf.Version, Interfaces: []resultInterface{host, pod}}
	for _, a := range made.Addrs {
		ip, route := resultIP{Interface: 1, Address: a.Address, Gateway: a.Gateway}, resultRoute{"0.0.0.0/0", a.Gateway}
		version := "4"
		if strings.Contains(a.Address, ":") {
			version, route.Dst = "6", "::/0"
		}
		if c.conf.Version < "1.0.0" {
			ip.Version = version
		}
		out.IPs, out.Routes = append(out.IPs, ip), append(out.Routes, route)
	}
	return out
}
