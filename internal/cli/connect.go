package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/source"
	podapp "portolan.dev/portolan/internal/pod/app"
	"portolan.dev/portolan/internal/pod/connection"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/path"
	"portolan.dev/portolan/internal/pod/peer"
	"portolan.dev/portolan/internal/pod/request"
)

// connect prints what a client sees that connects to a target.
func (f *explainFlags) connect(cmd *cobra.Command, t connection.Target) error {
	e, err := f.evaluate(cmd, asked{Peer: peer.Peer{Target: t}})
	if err != nil {
		return err
	}
	return f.print(cmd, e)
}

// print prints how the layers of a way are. The error is the exit status.
func (f *explainFlags) print(cmd *cobra.Command, e *path.Explanation) error {
	return f.printTold(cmd, &podapp.Told{Explanation: e})
}

func (f *explainFlags) printTold(cmd *cobra.Command, t *podapp.Told) error {
	if f.format == "json" {
		if err := printJSON(cmd.OutOrStdout(), t.Explanation); err != nil {
			return err
		}
		return ended(t.Exit())
	}
	text, err := t.WriteText(f.style(cmd))
	if err != nil {
		return err
	}
	if _, err := io.WriteString(cmd.OutOrStdout(), text); err != nil {
		return err
	}
	return ended(t.Exit())
}

// verdict prints whether policies allow a client to connect to the value of --to.
func (f *explainFlags) verdict(cmd *cobra.Command, client string) error {
	if cmd.Flags().Changed("from") {
		return exclusive("from", "to")
	}
	f.from = client
	to, err := peer.Parse(f.to)
	if err != nil {
		return fmt.Errorf("--to: %w", err)
	}
	e, err := f.evaluate(cmd, asked{Peer: to})
	if err != nil {
		return err
	}
	return f.printTold(cmd, &podapp.Told{Explanation: e, Verdict: true})
}

// asked is what the client asks for.
type asked struct {
	peer.Peer
	// message is what is sent to a URL; nil for a target without one.
	message *request.Message
}

// evaluate returns what a client sees that connects to a peer.
func (f *explainFlags) evaluate(cmd *cobra.Command, to asked) (*path.Explanation, error) {
	q, err := f.connection(&to)
	if err != nil {
		return nil, err
	}
	if to.message == nil {
		f.pod.source.also = []cluster.Kind{cluster.KindClusterNetworkPolicy}
	}
	if f.to != "" { // of others it is said where they matter
		f.pod.source.matters = []cluster.Kind{
			cluster.KindPod,
			cluster.KindNamespace,
			cluster.KindNode,
			cluster.KindNetworkPolicy,
			cluster.KindClusterNetworkPolicy,
		}
	}
	if err := f.askKernel(&q); err != nil {
		return nil, err
	}
	client, elsewhere := peer.ParseClient(f.from, f.onNode)
	var pods *podapp.Inspector
	var namespace string // of what is named without one
	if elsewhere {
		settings, err := f.pod.source.readOnce()
		if err != nil {
			return nil, err
		}
		if namespace, err = f.pod.source.defaultNamespace(settings); err != nil {
			return nil, err
		}
		l, err := load(cmd, &f.pod.source, source.Whole)
		if err != nil {
			return nil, err
		}
		pods = l.pods
	} else {
		ref, err := f.reference(cmd)
		if err != nil {
			return nil, err
		}
		c, err := f.pod.read(cmd, ref)
		if err != nil {
			return nil, err
		}
		c.cluster.warnOfZones(cmd.ErrOrStderr())
		client.Subject, q.DNS.Subject, q.DNS.Node = c.subject, c.subject, c.node
		pods, namespace = c.pods, c.subject.Namespace
	}
	q.Client, q.Namespace = &client, namespace
	if err := pods.CheckNode(f.onNode); err != nil && cmd.Flags().Changed("node") {
		return nil, err
	}
	if f.to != "" && !pods.KnowsPolicies() {
		return nil, errPoliciesUnread
	}
	if to.Pod != nil {
		subject, err := pods.Subject(to.Pod.In(namespace))
		if err != nil {
			return nil, fmt.Errorf("--to: %w", err)
		}
		q.To = &subject
	}
	if !f.live {
		return pods.Path(cmd.Context(), q)
	}
	how, err := f.packets(cmd.Context())
	if err != nil {
		return nil, err
	}
	return pods.Live(cmd.Context(), q, how)
}

// askKernel has the kernel asked: for the verdict of policies if there is one to ask, otherwise for the
// address of a Service if the flags say so.
func (f *explainFlags) askKernel(q *podapp.Way) error {
	if f.to == "" && !f.kernel && !f.live {
		return nil
	}
	settings, err := f.pod.source.read()
	if err != nil {
		return err
	}
	var node string
	if f.live && !f.kernel {
		return liveKernel(&settings, q)
	}
	if f.to == "" {
		if q.Kernel, err = kernelReader(&settings); err == nil {
			node = q.Kernel.Node
		}
	} else if q.Judge, err = kernelJudge(&settings, f.kernel); q.Judge != nil && f.kernel {
		node = q.Judge.Node
	}
	f.onNode = cmp.Or(f.onNode, node)
	return err
}

// connection returns the question, without the client.
func (f *explainFlags) connection(to *asked) (q podapp.Way, err error) {
	q.Target, q.Service, q.Message = to.Target, to.Service, to.message
	if q.DNS, err = f.question(to.Host); err != nil {
		return q, err
	}
	if q.DNS.Type != 0 {
		return q, errors.New("--type is not for HOST:PORT: connections use addresses")
	}
	return q, nil
}

// reference returns the Pod of the flags; nil is the only one of the file.
func (f *explainFlags) reference(cmd *cobra.Command) (*dnsconfig.Reference, error) {
	if f.pod.file != "" && !cmd.Flags().Changed("from") {
		return nil, nil
	}
	return parseReference(f.from)
}

// errNameOnly is the error of a name without a port for a client that is no Pod.
var errNameOnly = errors.New("--from node and outside go with HOST:PORT; names are resolved by Pods")
