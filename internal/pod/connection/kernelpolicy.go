package connection

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/policy/ruleset"
	"portolan.dev/portolan/internal/policy/semantics"
)

// KernelRuling compares what the kernel of a node does with the first packet of a connection with a Ruling.
type KernelRuling struct {
	// Result is KernelAgrees, KernelDiffers or KernelNotRead.
	Result string `json:"result"`
	// Why is what the kernel does instead, why that is not known, or why it agrees, in a clause; empty if
	// it agrees by the same rules.
	Why string `json:"why,omitempty"`
}

// The results of a KernelRuling.
const (
	KernelAgrees  = "agrees"
	KernelDiffers = "differs"
	KernelNotRead = "not read"
)

// KernelJudge judges connections by the policies in the kernel of a node.
type KernelJudge struct {
	// Node is the node whose kernel it is; empty if it is any.
	Node string
	// Judge returns what the kernel does in one direction with the first packet of a connection, after its
	// destination is translated; ToNode of the packet is not set. Its error says, for users, why that is not
	// known.
	Judge func(ruleset.Direction, ruleset.Packet) (ruleset.Verdict, error)
	// IsOwn reports whether an interface of the node has an address; nil is not known.
	IsOwn func(netip.Addr) bool
}

// kernelVerdict is what the kernel of a node does in one direction. The zero value was not to be asked, or
// judges no such packet.
type kernelVerdict struct {
	node    string // that judges; empty if it was not asked
	unread  string // why it is not known; empty if it is
	verdict ruleset.Verdict
}

func (k *kernelVerdict) isKnown() bool { return k.node != "" && k.unread == "" }

// askKernel asks the kernel of the node of one end, which judges a direction. It is not asked about what Pods
// in the network of their node send, and what a node sends to its own Pods, which no kernel judges.
func (x *explainer) askKernel(f *flow, d ruleset.Direction, own *semantics.End) kernelVerdict {
	source := f.from
	if d == ruleset.Ingress {
		source = f.source
	}
	switch {
	case x.Judge == nil || own.HostNetwork || d == ruleset.Ingress && source.IsNode() && source.Node == own.Node:
		return kernelVerdict{}
	case own.Node == "":
		return kernelVerdict{unread: "the Pod is on no node"}
	case x.Judge.Node != "" && own.Node != x.Judge.Node:
		return kernelVerdict{unread: fmt.Sprintf("this is node %s, and node %s judges it", x.Judge.Node, own.Node)}
	case len(source.Addrs) == 0 || len(f.to.Addrs) == 0:
		return kernelVerdict{unread: "the addresses are not known"}
	}
	k := kernelVerdict{node: own.Node}
	v, err := x.Judge.Judge(d, ruleset.Packet{
		Source: source.Addrs[0], Destination: f.to.Addrs[0], DestinationPort: f.port.Number,
		Protocol: map[cluster.Protocol]ruleset.Protocol{
			cluster.TCP: ruleset.TCP, cluster.UDP: ruleset.UDP, cluster.SCTP: ruleset.SCTP,
		}[f.port.Protocol],
	})
	if err != nil {
		k.unread = err.Error()
	}
	k.verdict = v
	return k
}

// compare compares what a kernel does with the model, which allows the connection or does not, and adds that
// they differ. It returns nil if the kernel was not to be asked.
func (x *explainer) compare(k kernelVerdict, allowed bool) *KernelRuling {
	switch {
	case k.unread != "":
		return &KernelRuling{Result: KernelNotRead, Why: k.unread}
	case k.node == "":
		return nil
	case k.verdict.Allowed == allowed:
		return &KernelRuling{Result: KernelAgrees}
	}
	r := &KernelRuling{Result: KernelDiffers, Why: "it lets the packet pass"}
	if !k.verdict.Allowed {
		r.Why = "it drops the packet: " + cmp.Or(k.verdict.Denial.Reason, "a rule of chain "+k.verdict.Denial.Chain)
	}
	x.add("policy-kernel-differs",
		"run the command again, in case a change was on its way; then look at the log of portolan node on node "+k.node,
		"the kernel of node %s differs from the model: %s", k.node, r.Why)
	return r
}

// kernelDiffers reports whether a kernel that was read differs from a Ruling.
func (e *Explanation) kernelDiffers() bool {
	return slices.ContainsFunc(e.Attempts, func(a Attempt) bool {
		return slices.ContainsFunc(a.Endpoints, func(u Use) bool { return u.Egress.differs() || u.Ingress.differs() })
	})
}

func (r *Ruling) differs() bool {
	return r != nil && r.Kernel != nil && r.Kernel.Result == KernelDiffers
}
