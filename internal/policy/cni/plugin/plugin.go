// Package plugin is the chained CNI plugin: a Pod's ADD returns when the agent has the Pod's policies in the
// kernel. It speaks versions 0.3.0 to 1.1.0 of the CNI specification,
// https://github.com/containernetworking/cni/blob/spec-v1.1.0/SPEC.md, to which sections refer.
//
//	runtime ── ADD, prevResult ──► plugin ── Pod, addresses ──► agent ──► kernel
//	        ◄──── prevResult ─────        ◄── done, or error ──
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

	"portolan.dev/portolan/internal/policy/cni/attach"
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

// code is an error code of section 5, "Error". Those from 100 are the plugin's own.
type code uint

const (
	codeVersion     code = 1  // "Incompatible CNI version"
	codeEnvironment code = 4  // "Invalid necessary environment variables"
	codeIO          code = 5  // "I/O failure"
	codeDecode      code = 6  // "Failed to decode content"
	codeConfig      code = 7  // "Invalid network config"
	codeTryAgain    code = 11 // "Try again later"
	codeUnavailable code = 50 // section 2, "STATUS": "The plugin is not available"
	codeNotInKernel code = 100
)

// failure is an error as the runtime gets it (section 5, "Error").
type failure struct {
	Version string `json:"cniVersion"`
	Code    code   `json:"code"`
	Message string `json:"msg"`
	Details string `json:"details,omitempty"`
}

// Error returns the message.
func (f *failure) Error() string { return f.Message }

func failf(c code, format string, args ...any) *failure {
	return &failure{Code: c, Message: "portolan: " + fmt.Sprintf(format, args...)}
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
	Version string `json:"cniVersion"`
	Name    string `json:"name"`
	Socket  string `json:"socket"`
	// PrevResult is the result of the plugin before.
	PrevResult json.RawMessage `json:"prevResult"`
	// Valid is for GC.
	Valid []attach.ID `json:"cni.dev/valid-attachments"`
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
		f = failf(codeIO, "%v", err)
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
		return failf(codeEnvironment, "CNI_COMMAND %q is unknown", name)
	}
	c.ContainerID, c.Interface = getenv("CNI_CONTAINERID"), getenv("CNI_IFNAME")
	c.netNS, c.args = getenv("CNI_NETNS"), getenv("CNI_ARGS")
	if err := c.Validate(); cmd.needsID && err != nil {
		return failf(codeEnvironment, "CNI_CONTAINERID, CNI_IFNAME: %v", err)
	}
	if cmd.needsNetNS && c.netNS == "" {
		return failf(codeEnvironment, "CNI_NETNS is not set")
	}
	if err := c.readConf(stdin); err != nil {
		return err
	}
	if c.conf.Version < cmd.since {
		return failf(codeVersion, "%s needs cniVersion %s, not %s", name, cmd.since, c.conf.Version)
	}
	return cmd.run(c)
}

// readConf reads the network configuration.
func (c *call) readConf(stdin io.Reader) error {
	text, err := io.ReadAll(stdin)
	if err != nil {
		return failf(codeIO, "configuration: %v", err)
	}
	c.conf.Socket = attach.DefaultSocket
	if err := json.Unmarshal(text, &c.conf); err != nil {
		return failf(codeDecode, "configuration: %v", err)
	}
	switch {
	case !slices.Contains(Versions(), c.conf.Version):
		return failf(codeVersion, "cniVersion %q is not one of %s", c.conf.Version, strings.Join(Versions(), ", "))
	case c.conf.Name == "":
		return failf(codeConfig, "the configuration has no name")
	case !filepath.IsAbs(c.conf.Socket):
		return failf(codeConfig, "socket %q is not an absolute path", c.conf.Socket)
	}
	return nil
}

// add admits the Pod, and prints the result of the plugin before.
func (c *call) add() error {
	r, err := c.request(attach.Admit)
	if err != nil {
		return err
	}
	if err := insist(c.conf.Socket, r); err != nil {
		f := failf(codeTryAgain, "Pod %s does not start without its policies: %v", r.Pod(), err)
		f.Details = hint(err)
		return f
	}
	_, err = c.stdout.Write(c.conf.PrevResult)
	return err
}

// del releases the attachment. It does not fail because the agent is away or has an error: the Pod ends in
// any case.
func (c *call) del() error {
	r := attach.Request{Verb: attach.Release, Sandbox: attach.Sandbox{ID: c.ID, Network: c.conf.Name}}
	err := attach.Call(time.Now().Add(endTime), c.conf.Socket, r)
	if err == nil {
		return nil
	}
	fmt.Fprintln(c.stderr, "portolan cni: DEL:", err)
	if errors.Is(err, attach.ErrUnreachable) { // the agent reads its records when it starts
		_ = os.Remove(filepath.Join(attach.Records(c.conf.Socket), c.String()))
	}
	return nil
}

// check reports whether the Pod's policies are in the kernel.
func (c *call) check() error {
	r, err := c.request(attach.Check)
	if err != nil {
		return err
	}
	err = insist(c.conf.Socket, r)
	switch {
	case errors.Is(err, attach.ErrUnreachable):
		return failf(codeTryAgain, "%v", err)
	case err != nil:
		return failf(codeNotInKernel, "Pod %s: %v", r.Pod(), err)
	}
	return nil
}

// collect tells the agent which attachments of the network exist.
func (c *call) collect() error {
	r := attach.Request{Verb: attach.Collect, Sandbox: attach.Sandbox{Network: c.conf.Name}, Valid: c.conf.Valid}
	if err := attach.Call(time.Now().Add(endTime), c.conf.Socket, r); err != nil {
		return failf(codeTryAgain, "%v", err)
	}
	return nil
}

// status reports whether the agent can admit Pods.
func (c *call) status() error {
	err := attach.Call(time.Now().Add(endTime), c.conf.Socket, attach.Request{Verb: attach.Ready})
	if err != nil {
		f := failf(codeUnavailable, "%v", err)
		f.Details = hint(err)
		return f
	}
	return nil
}

// insist is attach.Call, repeated while the agent cannot be reached, for awayTime.
func insist(socket string, r attach.Request) error {
	begin := time.Now()
	for {
		err := attach.Call(begin.Add(answerTime), socket, r)
		if !errors.Is(err, attach.ErrUnreachable) || time.Since(begin) >= awayTime {
			return err
		}
		time.Sleep(retryInterval)
	}
}

// hint says what to do about an error.
func hint(err error) string {
	if errors.Is(err, attach.ErrUnreachable) {
		return "is the Pod of portolan node on this node ready?"
	}
	return ""
}

// request returns a request with the Pod and its addresses.
func (c *call) request(verb attach.Verb) (attach.Request, error) {
	r := attach.Request{Verb: verb, Sandbox: attach.Sandbox{ID: c.ID, Network: c.conf.Name, NetNS: c.netNS}}
	if len(c.conf.PrevResult) == 0 || string(c.conf.PrevResult) == "null" {
		return r, failf(
			codeConfig, "no prevResult: this is a chained plugin, which comes after one that gives Pods addresses",
		)
	}
	var result prevResult
	if err := json.Unmarshal(c.conf.PrevResult, &result); err != nil {
		return r, failf(codeDecode, "prevResult: %v", err)
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
	for pair := range strings.SplitSeq(c.args, ";") {
		switch key, value, _ := strings.Cut(pair, "="); key {
		case "K8S_POD_NAMESPACE":
			r.Namespace = value
		case "K8S_POD_NAME":
			r.Name = value
		case "K8S_POD_UID":
			r.UID = value
		}
	}
	switch {
	case r.Namespace == "" || r.Name == "":
		return r, failf(
			codeEnvironment, "CNI_ARGS has no K8S_POD_NAMESPACE and K8S_POD_NAME: policies are for Pods of Kubernetes",
		)
	case len(r.Addresses) == 0:
		return r, failf(codeConfig, "prevResult has no address")
	}
	return r, nil
}
