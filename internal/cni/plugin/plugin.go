// Package plugin is the CNI plugin: a Pod's ADD returns when the agent on the node has made the Pod's link, or, behind
// the plugin of another network, when it has the Pod's policies in the kernel. It speaks versions 0.3.0 to 1.1.0 of
// the CNI specification, https://github.com/containernetworking/cni/blob/spec-v1.1.0/SPEC.md, to which sections refer.
//
//	runtime ── ADD, prevResult ──► plugin ── Pod, addresses ──► agent ──► kernel
//	        ◄──── prevResult ─────        ◄── done, or error ──
//
//	runtime ── ADD ──► plugin ── Pod, ports ──► agent ──► kernel
//	        ◄─ result ─        ◄─ addresses ──
//
// It imports little, above all not package net, nor the CNI libraries, which import it: see package
// pluginmain.
package plugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"portolan.dev/portolan/internal/cni/attach"
)

// Type is the type of the plugin in network configurations, and the name of its file.
const Type = "portolan"

// Versions returns the versions of the specification that the plugin speaks, the oldest first. Versions before
// 0.3.0 have no prevResult. Calico, Cilium and flannel write configurations of 0.3.1.
func Versions() []string { return []string{"0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"} }

// Times.
const (
	// answerTime is how long ADD and CHECK take at most. It is longer than awayTime and the time that the agent
	// takes at most, so that the agent's reason for a failure arrives.
	answerTime = 15 * time.Second
	// awayTime is how long they wait for an agent that cannot be reached, such as one that is being replaced.
	awayTime = 2 * time.Second
	// retryInterval is the time between two attempts to reach the agent.
	retryInterval = 20 * time.Millisecond
	// endTime is how long the other commands take at most.
	endTime = 5 * time.Second
)

// Codes of errors. Those from 100 are the plugin's own.
const codeBroken attach.Code = 100 // what CHECK looks for is not there

// failure is an error as the runtime gets it (section 5, "Error").
type failure struct {
	Version string      `json:"cniVersion"`
	Code    attach.Code `json:"code"`
	Message string      `json:"msg"`
	Details string      `json:"details,omitempty"`
}

// Error returns the message.
func (f *failure) Error() string { return f.Message }

func failf(c attach.Code, format string, args ...any) *failure {
	text := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "; ") // an error of several is one line
	return &failure{Code: c, Message: "portolan: " + text}
}

// call is a call of the runtime.
type call struct {
	attach.ID
	netNS, args string // CNI_NETNS and CNI_ARGS
	conf        conf
	stdout      io.Writer
	stderr      io.Writer
}

// conf is the part of the network configuration that the plugin reads.
type conf struct {
	Version string  `json:"cniVersion"`
	Name    string  `json:"name"`
	Socket  string  `json:"socket"`
	Runtime runtime `json:"runtimeConfig"`
	// PrevResult is the result of the plugin before.
	PrevResult json.RawMessage `json:"prevResult"`
	// Valid is for GC.
	Valid []attach.ID `json:"cni.dev/valid-attachments"`
}

// runtime is what the runtime adds for capabilities (CNI conventions).
type runtime struct {
	PortMappings []attach.Port     `json:"portMappings"`
	Bandwidth    *attach.Bandwidth `json:"bandwidth"`
}

// prevResult is the part of a result that the plugin reads, in all versions since 0.3.0.
type prevResult struct {
	IPs []struct {
		Address string `json:"address"` // with the length of the prefix
	} `json:"ips"`
	Interfaces []struct {
		Name    string `json:"name"`
		Sandbox string `json:"sandbox"` // empty for those of the host
	} `json:"interfaces"`
}

// command is a value of CNI_COMMAND.
type command struct {
	run   func(*call) error
	since string // the version that has it
	// needsID and needsNetNS say which parameters it requires.
	needsID, needsNetNS bool
}

func commands() map[string]command {
	return map[string]command{
		"ADD":    {run: (*call).add, since: "0.3.0", needsID: true, needsNetNS: true},
		"DEL":    {run: (*call).del, since: "0.3.0", needsID: true},
		"CHECK":  {run: (*call).check, since: "0.4.0", needsID: true, needsNetNS: true},
		"GC":     {run: (*call).collect, since: "1.1.0"},
		"STATUS": {run: (*call).status, since: "1.1.0"},
	}
}

// Called reports whether a container runtime calls the program: CNI_COMMAND is set, and there are no arguments
// but "cni".
func Called() bool {
	return os.Getenv("CNI_COMMAND") != "" && (len(os.Args) == 1 || len(os.Args) == 2 && os.Args[1] == "cni")
}

// Run does what the environment variable CNI_COMMAND says, with the configuration on stdin. It prints the
// result, or an error as JSON, on stdout, and returns the exit status.
func Run(stdin io.Reader, stdout, stderr io.Writer) int { return run(os.Getenv, stdin, stdout, stderr) }

func run(getenv func(string) string, stdin io.Reader, stdout, stderr io.Writer) int {
	c := &call{stdout: stdout, stderr: stderr}
	err := c.run(getenv, stdin)
	if err == nil {
		return 0
	}
	f, ok := errors.AsType[*failure](err)
	if !ok {
		f = failf(attach.CodeIO, "%v", err)
	}
	if f.Version = c.conf.Version; f.Version == "" {
		f.Version = slices.Max(Versions())
	}
	if err := json.NewEncoder(stdout).Encode(f); err != nil {
		fmt.Fprintln(stderr, "portolan cni:", err)
	}
	return 1
}

func (c *call) run(getenv func(string) string, stdin io.Reader) error {
	name := getenv("CNI_COMMAND")
	if name == "VERSION" {
		return json.NewEncoder(c.stdout).Encode(struct {
			Version   string   `json:"cniVersion"`
			Supported []string `json:"supportedVersions"`
		}{slices.Max(Versions()), Versions()})
	}
	cmd, ok := commands()[name]
	if !ok {
		return failf(attach.CodeEnvironment, "CNI_COMMAND %q is unknown", name)
	}
	c.ContainerID, c.Interface = getenv("CNI_CONTAINERID"), getenv("CNI_IFNAME")
	c.netNS, c.args = getenv("CNI_NETNS"), getenv("CNI_ARGS")
	if err := c.Validate(); cmd.needsID && err != nil {
		return failf(attach.CodeEnvironment, "CNI_CONTAINERID, CNI_IFNAME: %v", err)
	}
	if cmd.needsNetNS && c.netNS == "" {
		return failf(attach.CodeEnvironment, "CNI_NETNS is not set")
	}
	if err := c.readConf(stdin); err != nil {
		return err
	}
	if c.conf.Version < cmd.since {
		return failf(attach.CodeVersion, "%s needs cniVersion %s, not %s", name, cmd.since, c.conf.Version)
	}
	return cmd.run(c)
}

// readConf reads the network configuration.
func (c *call) readConf(stdin io.Reader) error {
	text, err := io.ReadAll(stdin)
	if err != nil {
		return failf(attach.CodeIO, "configuration: %v", err)
	}
	c.conf.Socket = attach.DefaultSocket
	if err := json.Unmarshal(text, &c.conf); err != nil {
		return failf(attach.CodeDecode, "configuration: %v", err)
	}
	switch {
	case !slices.Contains(Versions(), c.conf.Version):
		return failf(attach.CodeVersion, "cniVersion %q is not one of %s", c.conf.Version, strings.Join(Versions(), ", "))
	case c.conf.Name == "":
		return failf(attach.CodeConfig, "the configuration has no name")
	case !filepath.IsAbs(c.conf.Socket):
		return failf(attach.CodeConfig, "socket %q is not an absolute path", c.conf.Socket)
	}
	return nil
}

// add has the agent make the Pod's link, if this is the network's plugin, and otherwise admit the Pod.
func (c *call) add() error {
	if c.isFirst() {
		return c.link()
	}
	r, err := c.request(attach.Admit)
	if err != nil {
		return err
	}
	if _, err := insist(c.conf.Socket, r); err != nil {
		f := failf(codeOf(err), "Pod %s does not start without its policies: %v", r.Pod(), err)
		f.Details = hint(err)
		return f
	}
	_, err = c.stdout.Write(c.conf.PrevResult)
	return err
}

// del releases the attachment. It does not fail because the agent is away, or has an error with policies: the Pod ends
// in any case. It fails if the agent could not undo a link that it made, so that the runtime tries again.
func (c *call) del() error {
	r := attach.Request{Verb: attach.Release, Sandbox: attach.Sandbox{ID: c.ID, Network: c.conf.Name}}
	err := attach.Call(time.Now().Add(endTime), c.conf.Socket, r)
	if errors.Is(err, attach.ErrUnreachable) { // the agent reads its records when it starts
		attach.End(c.conf.Socket, c.ID)
		// It may have read them meanwhile. It listens before.
		err = attach.Call(time.Now().Add(endTime), c.conf.Socket, r)
	}
	if refused, ok := errors.AsType[*attach.RefusedError](err); ok && refused.Code != 0 { // the runtime tries again
		return failf(refused.Code, "%v", err)
	}
	if err != nil {
		fmt.Fprintln(c.stderr, "portolan cni: DEL:", err)
	}
	return nil
}

// check reports whether the Pod's policies are in the kernel, and its link if the agent made it.
func (c *call) check() error {
	r, err := c.request(attach.Check)
	if err != nil {
		return err
	}
	_, err = insist(c.conf.Socket, r)
	refused, ok := errors.AsType[*attach.RefusedError](err)
	switch {
	case err == nil:
		return nil
	case ok && refused.Code == 0:
		return failf(codeBroken, "Pod %s: %v", r.Pod(), err)
	}
	return failf(codeOf(err), "Pod %s: %v", r.Pod(), err)
}

// collect tells the agent which attachments of the network exist.
func (c *call) collect() error {
	r := attach.Request{Verb: attach.Collect, Sandbox: attach.Sandbox{Network: c.conf.Name}, Valid: c.conf.Valid}
	if err := attach.Call(time.Now().Add(endTime), c.conf.Socket, r); err != nil {
		return failf(attach.CodeTryAgain, "%v", err)
	}
	return nil
}

// status reports whether the agent can admit Pods.
func (c *call) status() error {
	err := attach.Call(time.Now().Add(endTime), c.conf.Socket, attach.Request{Verb: attach.Ready})
	if err != nil {
		f := failf(attach.CodeUnavailable, "%v", err)
		f.Details = hint(err)
		return f
	}
	return nil
}

// insist is attach.CallForResult, repeated while the agent cannot be reached, for awayTime.
func insist(socket string, r attach.Request) (*attach.Result, error) {
	begin := time.Now()
	for {
		result, err := attach.CallForResult(begin.Add(answerTime), socket, r)
		if !errors.Is(err, attach.ErrUnreachable) || time.Since(begin) >= awayTime {
			return result, err
		}
		time.Sleep(retryInterval)
	}
}

// codeOf returns the code of an error of attach.Call.
func codeOf(err error) attach.Code {
	if refused, ok := errors.AsType[*attach.RefusedError](err); ok && refused.Code != 0 {
		return refused.Code
	}
	return attach.CodeTryAgain
}

// hint says what to do about an error.
func hint(err error) string {
	if errors.Is(err, attach.ErrUnreachable) {
		return "is the Pod of portolan node on this node ready?"
	}
	return ""
}

// isFirst reports whether there is no plugin before, so that this one makes the link.
func (c *call) isFirst() bool {
	return len(c.conf.PrevResult) == 0 || string(c.conf.PrevResult) == "null"
}

// request returns a request with the Pod, and with its addresses of the result before.
func (c *call) request(verb attach.Verb) (attach.Request, error) {
	r := attach.Request{Verb: verb, Sandbox: c.sandbox()}
	if c.isFirst() {
		return r, failf(attach.CodeConfig, "no prevResult: CHECK has that of ADD")
	}
	var result prevResult
	if err := json.Unmarshal(c.conf.PrevResult, &result); err != nil {
		return r, failf(attach.CodeDecode, "prevResult: %v", err)
	}
	for _, ip := range result.IPs {
		addr, _, _ := strings.Cut(ip.Address, "/")
		r.Addresses = append(r.Addresses, addr)
	}
	for _, i := range result.Interfaces {
		if i.Sandbox == "" && i.Name != "" {
			r.Devices = append(r.Devices, i.Name)
		}
	}
	switch {
	case verb == attach.Admit && (r.Namespace == "" || r.Name == ""):
		return r, failf(
			attach.CodeEnvironment, "CNI_ARGS has no K8S_POD_NAMESPACE and K8S_POD_NAME: policies are for Pods of Kubernetes",
		)
	case len(r.Addresses) == 0:
		return r, failf(attach.CodeConfig, "prevResult has no address")
	}
	return r, nil
}

// sandbox returns the Pod's sandbox. Its name is empty if the runtime does not pass it.
func (c *call) sandbox() attach.Sandbox {
	s := attach.Sandbox{ID: c.ID, Network: c.conf.Name, NetNS: c.netNS}
	for pair := range strings.SplitSeq(c.args, ";") {
		switch key, value, _ := strings.Cut(pair, "="); key {
		case "K8S_POD_NAMESPACE":
			s.Namespace = value
		case "K8S_POD_NAME":
			s.Name = value
		case "K8S_POD_UID":
			s.UID = value
		}
	}
	return s
}
