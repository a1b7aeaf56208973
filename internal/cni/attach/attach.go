// Package attach is what the CNI plugin and the agent say to each other, over a Unix socket: an object of
// JSON from the plugin, one from the agent, and the connection ends.
//
//	plugin ── Request{admit, Attachment} ──► agent
//	       ◄────────── Reply{} ─────────────
//
// It imports little, above all not package net: see package pluginmain.
package attach

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// DefaultSocket is where the agent listens unless it is told otherwise.
const DefaultSocket = "/run/portolan/cni.sock"

// version is that of requests and replies. The binary of the plugin and the agent can differ while a node is
// updated.
const version = 1

// ID identifies an attachment on a node (CNI specification, section 2, "Parameters").
type ID struct {
	ContainerID string `json:"containerID"`
	Interface   string `json:"ifname"` // in the Pod
}

// String returns the ID as the name of a file.
func (id ID) String() string { return id.ContainerID + "," + id.Interface }

// ParseID returns the ID that String returned.
func ParseID(s string) (id ID, ok bool) {
	id.ContainerID, id.Interface, ok = strings.Cut(s, ",")
	return id, ok && id.Validate() == nil
}

// Bounds of an ID, in octets.
const (
	maxID        = 128 // runtimes use 64
	maxInterface = 15  // IFNAMSIZ of the kernel, without the octet 0 at the end
)

// Validate returns an error if the ID has characters that the CNI specification does not allow, which are all
// those with a meaning in paths, or if the kernel takes the interface for no name of a device.
func (id ID) Validate() error {
	if id.ContainerID == "" || len(id.ContainerID) > maxID {
		return fmt.Errorf("container ID %.32q is not of 1 to %d octets", id.ContainerID, maxID)
	}
	for i, r := range id.ContainerID {
		alphanumeric := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		if !alphanumeric && (i == 0 || !strings.ContainsRune("_.-", r)) {
			return fmt.Errorf("container ID %q has characters that the CNI specification does not allow", id.ContainerID)
		}
	}
	if !isDevice(id.Interface) {
		return fmt.Errorf("interface %.32q is not the name of a device", id.Interface)
	}
	return nil
}

// isDevice reports whether a device can have a name (net/core/dev.c, dev_valid_name): the kernel makes another one of a
// name with %, and has directories for all devices, and for those to come, below /proc/sys/net.
func isDevice(name string) bool {
	switch name {
	case "", ".", "..", "all", "default":
		return false
	}
	return len(name) <= maxInterface && !strings.ContainsAny(name, "/:%\x7f") &&
		!strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' })
}

// Device is the device of the host behind which a Pod is.
type Device struct {
	Name  string
	Index uint32
}

// Sandbox is a Pod's network namespace, attached to a network.
type Sandbox struct {
	ID
	// Network is the name of the network configuration.
	Network string `json:"network"`
	// NetNS is the path of the namespace on the host.
	NetNS string `json:"netns,omitempty"`
	// Namespace, Name and UID are those of the Pod, as the kubelet gave them to the runtime. The UID of a
	// static Pod is not that of its mirror in the API. It is empty if the runtime does not pass it.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`
}

// Bounds of what a Sandbox has, in octets.
const (
	maxName = 253  // of names of the API (RFC 1123 subdomains), and enough for that of a network
	maxPath = 4095 // PATH_MAX of the kernel, without the octet 0 at the end
)

// checkText returns an error if anything is longer than it can be, or what no name and no path is: it is all recorded
// and logged.
func (s *Sandbox) checkText() error {
	for _, f := range []struct {
		what, text string
		longest    int
	}{
		{"container ID", s.ContainerID, maxID},
		{"network", s.Network, maxName},
		{"network namespace", s.NetNS, maxPath},
		{"namespace", s.Namespace, maxName},
		{"name", s.Name, maxName},
		{"UID", s.UID, maxName},
	} {
		if len(f.text) > f.longest {
			return fmt.Errorf("%s %.32q… has %d octets, and %d at most are possible", f.what, f.text, len(f.text), f.longest)
		}
		if strings.Contains(f.text, "\x00") {
			return fmt.Errorf("%s %q has the octet 0", f.what, f.text)
		}
	}
	return nil
}

// Pod returns the namespace and the name of the Pod.
func (s *Sandbox) Pod() string { return s.Namespace + "/" + s.Name }

// Verb is what a Request asks for.
type Verb string

// The verbs.
const (
	// Add has the agent make a Pod's link to the node's network, and wait until it works.
	Add Verb = "add"
	// Admit has the agent put the policies of a Pod into the kernel, and wait until they are.
	Admit Verb = "admit"
	// Release says that an attachment ends.
	Release Verb = "release"
	// Check asks whether a Pod's policies are in the kernel, and its link if the agent made it.
	Check Verb = "check"
	// Collect lists the attachments of a network that exist; all others of that network have ended.
	Collect Verb = "collect"
	// Ready asks whether the agent can admit.
	Ready Verb = "ready"
)

// Request is a request of the plugin.
type Request struct {
	Version int  `json:"version"`
	Verb    Verb `json:"verb"`
	// Sandbox is that of Admit, Release and Check. Of Collect it has the network only.
	Sandbox
	// Addresses are what the plugins before in the chain gave the Pod, for Admit and Check.
	Addresses []string `json:"addresses,omitempty"`
	// Devices are the names of the devices on the host that they reported, for Admit; agents that do not know
	// the field ignore it.
	Devices []string `json:"devices,omitempty"`
	// Ports and Bandwidth are what the Pod asks for, for Add.
	Ports     []Port     `json:"ports,omitempty"`
	Bandwidth *Bandwidth `json:"bandwidth,omitempty"`
	// Valid are the attachments that exist, for Collect.
	Valid []ID `json:"valid,omitempty"`
}

// Port is a port of a node that leads to a port of a Pod, as the capability portMappings has it (CNI conventions,
// "Dynamic Plugin specific fields").
type Port struct {
	HostPort      uint16 `json:"hostPort"`
	ContainerPort uint16 `json:"containerPort"`
	Protocol      string `json:"protocol,omitempty"` // tcp, the default, udp or sctp
	// HostIP is the only address of the node that it is for; empty is all.
	HostIP string `json:"hostIP,omitempty"`
}

// Bandwidth limits a Pod's packets, as the capability bandwidth has it, in bits per second, and in bits. 0 is no limit.
type Bandwidth struct {
	IngressRate  uint64 `json:"ingressRate,omitempty"`
	IngressBurst uint64 `json:"ingressBurst,omitempty"`
	EgressRate   uint64 `json:"egressRate,omitempty"`
	EgressBurst  uint64 `json:"egressBurst,omitempty"`
}

// Result is a link that Add made.
type Result struct {
	Host  Interface `json:"host"`
	Pod   Interface `json:"pod"`
	Addrs []Address `json:"addresses"`
}

// Interface is an end of a Pod's link.
type Interface struct {
	Name string `json:"name"`
	MAC  string `json:"mac"`
	MTU  int    `json:"mtu"`
}

// Address is an address of a Pod, with the length of its prefix, and the gateway of its default route.
type Address struct {
	Address string `json:"address"`
	Gateway string `json:"gateway"`
}

// Reply is the agent's. Error is empty if what was asked for is done.
type Reply struct {
	Version int    `json:"version"`
	Error   string `json:"error,omitempty"`
	Code    Code   `json:"code,omitempty"` // of the error, 0 for one that the plugin chooses
	// Result is that of Add.
	Result *Result `json:"result,omitempty"`
}

// maxMessage is the longest message, in octets: Collect for some 5,000 attachments.
const maxMessage = 1 << 20

// maxItems is how many ports a Pod can ask for, or addresses or devices it can have.
const maxItems = 4096

// ErrUnreachable is wrapped by the errors of Call if there was no reply.
var ErrUnreachable = errors.New("the agent does not answer")

// Code is a code of an error for the runtime (CNI specification, section 5, "Error").
type Code uint

// Codes of the specification.
const (
	CodeVersion     Code = 1  // "Incompatible CNI version"
	CodeField       Code = 2  // "Unsupported field in network configuration"
	CodeContainer   Code = 3  // "Container unknown or does not exist"
	CodeEnvironment Code = 4  // "Invalid necessary environment variables"
	CodeIO          Code = 5  // "I/O failure"
	CodeDecode      Code = 6  // "Failed to decode content"
	CodeConfig      Code = 7  // "Invalid network config"
	CodeTryAgain    Code = 11 // "Try again later"
	CodeUnavailable Code = 50 // section 2, "STATUS": "The plugin is not available"
)

// ErrStopped is the cause that ends requests in progress when the agent's process ends.
var ErrStopped = errors.New("the agent ends")

// RefusedError is a Reply's Error. An agent returns it as the failure of a request that has a code.
type RefusedError struct {
	Code Code // 0 is one that the plugin chooses
	Text string
}

// Error returns the agent's text.
func (e *RefusedError) Error() string { return e.Text }

// Read reads the text of a request. Its error is for the plugin.
func Read(r io.Reader) (text []byte, err error) {
	from := &io.LimitedReader{R: r, N: maxMessage}
	err = json.NewDecoder(from).Decode((*json.RawMessage)(&text))
	if err != nil && from.N == 0 {
		err = fmt.Errorf("it is longer than %d octets", maxMessage)
	}
	if err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	return text, nil
}

// Parse returns the request in a text. It takes up to twenty times the text's room meanwhile. Its error is for the
// plugin.
func Parse(text []byte) (Request, error) {
	var request Request
	if err := json.Unmarshal(text, &request); err != nil {
		return Request{}, fmt.Errorf("request: %w", err)
	}
	if request.Version != version {
		return Request{}, fmt.Errorf(
			"the plugin speaks version %d and the agent version %d: install the plugin again", request.Version, version,
		)
	}
	if err := request.checkText(); err != nil {
		return Request{}, fmt.Errorf("request: %w", err)
	}
	if n := max(len(request.Ports), len(request.Addresses), len(request.Devices)); n > maxItems {
		return Request{}, fmt.Errorf("request: %d ports, addresses or devices, and %d at most are possible", n, maxItems)
	}
	return request, nil
}

// WriteReply sends the reply to a request that had this result, or failed.
func WriteReply(w io.Writer, result *Result, failure error) error {
	reply := Reply{Version: version, Result: result}
	if failure != nil {
		reply.Error = failure.Error()
	}
	if refused, ok := errors.AsType[*RefusedError](failure); ok {
		reply.Code = refused.Code
	}
	return json.NewEncoder(w).Encode(reply)
}

// Records returns the directory in which the agent at a socket records the attachments that it admitted, one file each,
// named by ID.
func Records(socket string) string { return filepath.Join(filepath.Dir(socket), "attachments") }

// LinkRecords returns the directory in which the agent at a socket records the attachments whose links it made, one
// file each, named by ID with LinkSuffix.
func LinkRecords(socket string) string { return filepath.Join(filepath.Dir(socket), "network") }

// LinkSuffix ends the names of files in LinkRecords, and EndedSuffix, after it, those of attachments that ended while
// the agent was away.
const (
	LinkSuffix  = ".record"
	EndedSuffix = ".ended"
)

// End notes beside the records of the agent at a socket that an attachment has ended: the record of one that was
// admitted goes, and that of a link gets another name, since the link is left to be removed.
func End(socket string, id ID) {
	_ = os.Remove(filepath.Join(Records(socket), id.String()))
	link := filepath.Join(LinkRecords(socket), id.String()+LinkSuffix)
	_ = os.Rename(link, link+EndedSuffix)
}
