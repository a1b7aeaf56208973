package connection

import (
	"fmt"
	"strings"

	"portolan.dev/portolan/internal/proxy/frontend"
)

// KernelReader reads what the kernel of a node has.
type KernelReader struct {
	// Node is the node whose kernel it is; empty if it is any, as with manifests.
	Node string
	// Read returns what the kernel has for an address, and how it differs from the frontend there;
	// nil is none. Its error says, for users, why it cannot be read.
	Read func(frontend.Address, *frontend.Frontend) (Kernel, error)
}

// Kernel is what the kernel of a node has for an address.
type Kernel struct {
	// Element is that of the map services, as nft lists it.
	Element   string `json:"element,omitempty"`
	Endpoints int    `json:"endpoints"`
	Local     int    `json:"local"`
	// Differences say how it differs from the model, in a clause each.
	Differences []string `json:"differences,omitempty"`
	// Unread is why it is not known.
	Unread string `json:"unread,omitempty"`
}

// kernelHas returns what the kernel has for the address, and adds that it differs from the
// model.
func (t *try) kernelHas() *Kernel {
	reader := t.Kernel
	if reader == nil {
		return nil
	}
	if node := t.proxy.node.Name; reader.Node != "" && node != reader.Node {
		return &Kernel{Unread: fmt.Sprintf("this is node %s, and node %s handles the connection", reader.Node, node)}
	}
	k, err := reader.Read(t.at, t.verdict.Frontend)
	if err != nil {
		return &Kernel{Unread: err.Error()}
	}
	if len(k.Differences) > 0 {
		t.add("kernel-differs",
			"run the command again, in case a change was on its way; then look at the log of portolan proxy on the node",
			"the kernel of node %s differs from the model at %s: %s", t.proxy.node.Name, t.at, strings.Join(k.Differences, "; "))
		t.e.flawed = true
	}
	return &k
}

func (k *Kernel) write(b *strings.Builder) {
	if k.Unread != "" {
		fmt.Fprintf(b, "  kernel: not read: %s\n", k.Unread)
		return
	}
	fmt.Fprintf(b, "  kernel: %s", k.Element)
	switch {
	case k.Endpoints == 1:
		b.WriteString(", 1 endpoint")
	case k.Endpoints > 1:
		fmt.Fprintf(b, ", %d endpoints", k.Endpoints)
	}
	if k.Local > 0 {
		fmt.Fprintf(b, ", %d of them on the node", k.Local)
	}
	if len(k.Differences) == 0 {
		b.WriteString(", as in the model\n")
		return
	}
	b.WriteString(", which differs from the model:\n")
	for _, d := range k.Differences {
		fmt.Fprintf(b, "    %s\n", d)
	}
}
