package cli

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/kube/manifest"
	kubesettings "portolan.dev/portolan/internal/kube/settings"
	"portolan.dev/portolan/internal/kube/source"
	podapp "portolan.dev/portolan/internal/pod/app"
	"portolan.dev/portolan/internal/pod/dnsconfig"
)

// nodeFlags are the settings of nodes that are not in the model of a cluster.
type nodeFlags struct {
	resolvConf string
	clusterDNS []string
}

func (f *nodeFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(
		&f.resolvConf, "node-resolv-conf", "", "the node's resolv.conf is this `FILE` (default: it is not known)",
	)
	cmd.Flags().StringArrayVar(
		&f.clusterDNS, "cluster-dns", nil,
		"Pods reach the cluster DNS at this `ADDR`, repeatable (default: the cluster IPs of the DNS Service)",
	)
	_ = cmd.MarkFlagFilename("node-resolv-conf")
	_ = cmd.RegisterFlagCompletionFunc("cluster-dns", cobra.NoFileCompletions)
}

// read returns the settings. It prints the lines of the node's resolv.conf that have no
// effect on stderr.
func (f *nodeFlags) read(stderr io.Writer) (n podapp.NodeSettings, err error) {
	for _, text := range f.clusterDNS {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return n, fmt.Errorf("--cluster-dns: %q is not an address, such as 10.96.0.10", text)
		}
		n.ClusterDNS = append(n.ClusterDNS, addr.Unmap())
	}
	if f.resolvConf == "" {
		return n, nil
	}
	config, problems, err := podapp.ReadNode(f.resolvConf)
	if err != nil {
		return n, fmt.Errorf("--node-resolv-conf: %w", err)
	}
	n.ResolvConf = config
	for _, p := range problems {
		fmt.Fprintf(stderr, "portolan: warning: %s:%d: %s\n", f.resolvConf, p.Line, p.Err)
	}
	return n, nil
}

// noteAssumed prints a note on stderr if the address of the cluster DNS is unknown and
// therefore assumed.
func noteAssumed(pods *podapp.Inspector, n podapp.NodeSettings, stderr io.Writer) {
	if addr, assumed := pods.AssumedDNS(n); assumed {
		fmt.Fprintf(
			stderr,
			"portolan: note: no DNS Service is known; %s is assumed as its cluster IP (--cluster-dns sets another)\n",
			addr,
		)
	}
}

// subjectFlags select a Pod and its cluster.
type subjectFlags struct {
	source sourceFlags
	file   string
}

func (f *subjectFlags) add(cmd *cobra.Command) {
	f.source.addRead(cmd)
	cmd.Flags().StringVarP(
		&f.file, "filename", "f", "",
		"read the Pod or workload from this manifest `FILE`, or from standard input (-); without another source, the "+
			"file is also the cluster",
	)
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
}

// podFlags select a Pod, its cluster and its node.
type podFlags struct {
	subjectFlags
	node nodeFlags
}

func (f *podFlags) add(cmd *cobra.Command) {
	f.subjectFlags.add(cmd)
	f.node.add(cmd)
}

// chosen is a Pod with its cluster and its node.
type chosen struct {
	cluster *onceCluster
	pods    *podapp.Inspector // of the cluster
	subject dnsconfig.Subject
	node    podapp.NodeSettings
}

// read reads the cluster and finds the Pod that ref names, in the cluster or in the
// file. If ref is nil, it is the only Pod in the file. Without flags or settings for a
// cluster, the file is also the cluster.
func (f *podFlags) read(cmd *cobra.Command, ref *dnsconfig.Reference) (c chosen, err error) {
	stderr := cmd.ErrOrStderr()
	if c.node, err = f.node.read(stderr); err != nil {
		return c, err
	}
	settings, err := f.settings()
	if err != nil {
		return c, err
	}
	l, subject, err := f.find(cmd, settings, ref)
	if err != nil {
		return c, err
	}
	c.cluster, c.pods, c.subject = l, l.pods, subject
	if err := c.byWebhook(&settings.Webhook, stderr); err != nil {
		return c, err
	}
	noteAssumed(c.pods, c.node, stderr)
	return c, nil
}

// settings returns the configuration. If a file is given, it is the cluster unless another
// one is named, such as by a context: kubectl's cluster is not.
func (f *subjectFlags) settings() (config.Config, error) {
	if f.file != "" && f.source.access.context == "" {
		return f.source.read()
	}
	return f.source.readOnce()
}

// find reads the cluster and the Pod. It never forwards queries.
func (f *subjectFlags) find(
	cmd *cobra.Command, settings config.Config, ref *dnsconfig.Reference,
) (l *onceCluster, s dnsconfig.Subject, err error) {
	if f.file == "-" && settings.Manifests == "-" {
		return nil, s, errors.New("--manifests - and --filename - exclude each other: there is one standard input")
	}
	routes := settings.DNS.Forward.Routes
	settings.DNS.Forward.Routes = nil
	alone := settings.Simulate.Enabled && settings.Manifests == "" && f.file != ""
	if alone {
		settings.Manifests = f.file
	}
	r, err := f.source.reading(settings, source.Whole)
	if err != nil {
		return nil, s, err
	}
	if ref != nil {
		*ref = ref.In(r.Fallback[0])
		r.Fallback = []string{ref.Namespace}
	}
	if l, err = openCluster(cmd, r); err != nil {
		return nil, s, err
	}
	r.Settings.DNS.Forward.Routes = routes // to explain what the server does with names outside
	if err := l.inspect(r.Settings); err != nil {
		return nil, s, err
	}
	files := source.Files{Paths: []string{f.file}, Stdin: cmd.InOrStdin()}
	loaded, err := l.load(cmd.Context())
	if f.file != "" && errors.Is(err, errNoCluster) {
		alone = true
		loaded, err = l.loadFiles(files)
	}
	if err != nil {
		return nil, s, err
	}
	printLoaded(f.source.relevant(loaded), cmd.ErrOrStderr())
	switch {
	case ref != nil && (f.file == "" || alone):
		s, err = l.pods.Subject(*ref)
	case alone:
		s, err = l.pods.OnlySubject()
	default:
		var report manifest.Report
		s, report, err = podapp.SubjectIn(files, ref)
		printProblems(report.Problems, cmd.ErrOrStderr())
	}
	return l, s, err
}

// byWebhook sets the name servers that the webhook writes into a Pod with the policy
// ClusterFirstWithAutopath, unless a flag sets them. It notes on stderr that labels and
// annotations, which give that policy to new Pods as well, are ignored.
func (c *chosen) byWebhook(w *kubesettings.Webhook, stderr io.Writer) error {
	if len(w.ClusterDNS) == 0 {
		return nil
	}
	switch c.pods.ResolvConf(&c.subject, c.node).Policy {
	case dnsconfig.ClusterFirst:
		if c.subject.Pod == nil || len(c.subject.Pod.IPs) == 0 {
			fmt.Fprintln(
				stderr,
				"portolan: note: labels and annotations portolan.dev/dns-policy are ignored; with dnsPolicy: "+
					"ClusterFirstWithAutopath, the Pod is as the webhook would change it",
			)
		}
	case dnsconfig.ClusterFirstWithAutopath:
		if len(c.node.ClusterDNS) > 0 {
			return nil
		}
		for _, text := range slices.Concat(w.NodeDNS, w.ClusterDNS) {
			addr, err := netip.ParseAddr(text)
			if err != nil {
				return fmt.Errorf("webhook: %q is not an address, such as 10.96.0.10", text)
			}
			c.node.ClusterDNS = append(c.node.ClusterDNS, addr.Unmap())
		}
	}
	return nil
}

// argument parses the Pod in the argument of a command. It returns nil if the argument
// is missing and a file is given.
func (f *subjectFlags) argument(cmd *cobra.Command, args []string) (*dnsconfig.Reference, error) {
	switch {
	case len(args) > 0:
		return parseReference(args[0])
	case f.file != "":
		return nil, nil
	}
	return nil, fmt.Errorf("missing argument; usage: %s", cmd.UseLine())
}

func parseReference(text string) (*dnsconfig.Reference, error) {
	r, err := dnsconfig.ParseReference(text)
	return &r, err
}
