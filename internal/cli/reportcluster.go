package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/kube/api"
	"portolan.dev/portolan/internal/kube/inventory"
	"portolan.dev/portolan/internal/kube/simulate/apiobject"
	"portolan.dev/portolan/internal/kube/source"
	"portolan.dev/portolan/internal/ops/report"
	podapp "portolan.dev/portolan/internal/pod/app"
	"portolan.dev/portolan/internal/pod/lint"
)

// reportedCluster is the cluster of a report.
type reportedCluster struct {
	once   *onceCluster // nil if there is none
	loaded source.Loaded
	reader *inventory.Reader // nil for manifests
	pods   []inventory.Pod
}

// openCluster reads the cluster of the flags, and notes what of it is secret or masked.
func (r *reporter) openCluster() *reportedCluster {
	c := &reportedCluster{}
	check := checkFlags{source: r.flags.source}
	ctx := r.cmd.Context()
	reading, cancel := context.WithTimeout(ctx, reportTime/2) // the other half is for the rest
	defer cancel()
	r.cmd.SetContext(reading)
	defer r.cmd.SetContext(ctx)
	once, loaded, err := check.load(r.cmd)
	if err != nil {
		r.archive.Miss("cluster", err.Error())
		return c
	}
	c.once, c.loaded = once, loaded
	once.store.View(func(v *cluster.View) {
		for s := range cluster.Secrets.All(v) {
			for _, data := range s.Data {
				r.clean.Hide(string(data))
			}
		}
		if r.flags.maskNames {
			masker{r.clean}.objects(v)
		}
	})
	if r.flags.maskNames {
		c.mask(masker{r.clean})
	}
	for _, u := range loaded.Unread {
		r.archive.Miss("cluster/"+apiobject.Resource(u.Kind), u.Err.Error())
	}
	return c
}

// mask has the names masked that are not those of objects: of hosts, files, and objects that do not exist.
func (c *reportedCluster) mask(m masker) {
	for _, route := range c.once.pods.Routes() {
		m.hosts(route.Hostnames)
		m.messages(route.Problems...)
	}
	for _, ingress := range c.once.pods.Ingresses() {
		m.hosts(ingress.Hosts)
		m.messages(ingress.Problems...)
	}
	for _, gateway := range c.once.pods.Gateways() {
		m.messages(gateway.Problems...)
	}
	found := c.findings().shown
	for i := range found {
		m.messages(found[i].Message, found[i].Fix)
		m.clean.MaskPath(found[i].File)
	}
}

// files returns the files of a cluster.
func (c *reportedCluster) files(settings config.Config, flags *sourceFlags) (files []report.File) {
	if c.once == nil {
		return nil
	}
	add := func(name, about string, collect func(context.Context, io.Writer) error) {
		files = append(files, report.File{Name: "cluster/" + name, About: about, Collect: collect})
	}
	add("objects.txt", "how many objects of each kind were read", func(_ context.Context, w io.Writer) error {
		return c.writeCounts(w)
	})
	add("findings.txt", "what portolan check finds", func(_ context.Context, w io.Writer) error {
		return printFindings(w, c.findings())
	})
	pods := c.once.pods
	for name, rows := range map[string]any{
		"routes.json": pods.Routes(), "gateways.json": pods.Gateways(), "ingresses.json": pods.Ingresses(),
	} {
		kind, _, _ := strings.Cut(name, ".")
		add(name, "what a gateway makes of "+kind, func(_ context.Context, w io.Writer) error { return printJSON(w, rows) })
	}
	slices.SortFunc(files, func(a, b report.File) int { return strings.Compare(a.Name, b.Name) })
	if settings.Manifests != "" {
		return files
	}
	var err error
	if c.reader, err = newInventory(settings, flags); err != nil {
		return files // the cluster was read, so the kubeconfig changed meanwhile
	}
	add("versions.txt", "versions of the API server and of its API groups", c.reader.Versions)
	add("nodes.txt", "versions, kernels and conditions of Nodes", c.reader.Nodes)
	add("pods.json", "the Pods of Portolan", func(ctx context.Context, w io.Writer) (err error) {
		if c.pods, err = c.reader.Pods(ctx, ""); err != nil && flags.access.namespace != "" {
			c.pods, err = c.reader.Pods(ctx, flags.access.namespace)
		}
		if err != nil {
			return err
		}
		return inventory.WritePods(w, c.pods)
	})
	return files
}

// newInventory returns a reader of the cluster of the flags.
func newInventory(settings config.Config, flags *sourceFlags) (*inventory.Reader, error) {
	const qps, burst = 20, 50
	client, err := api.NewClient(api.ClientConfig{
		Kubeconfig: settings.Kubernetes.Kubeconfig, Context: flags.access.context, QPS: qps, Burst: burst,
		Timeout: reportFileTime, UserAgent: "portolan/" + version(),
	})
	if err != nil {
		return nil, err
	}
	return &inventory.Reader{Client: client}, nil
}

// writeCounts writes how many objects there are of each kind, and whether all were read.
func (c *reportedCluster) writeCounts(w io.Writer) (err error) {
	c.once.store.View(func(v *cluster.View) {
		for _, k := range cluster.Kinds() {
			if _, err = fmt.Fprintf(w, "%s %d %s\n", apiobject.Resource(k), v.Len(k), v.Freshness(k)); err != nil {
				return
			}
		}
	})
	return err
}

// findings are those of all rules.
func (c *reportedCluster) findings() findings {
	f := findings{all: make(map[lint.Severity]int), passedOver: c.loaded.PassedOver, notObjects: c.loaded.NotObjects}
	f.shown = c.once.pods.Findings(c.loaded, podapp.NodeSettings{}, func(string) bool { return true })
	for _, one := range f.shown {
		f.all[one.Severity]++
	}
	return f
}

// logs adds the ends of the logs of Portolan's Pods, and of their containers before a restart.
func (c *reportedCluster) logs(ctx context.Context, r *reporter) error {
	for i := range c.pods {
		p := &c.pods[i]
		for _, of := range p.Containers {
			logs := []inventory.Log{{Pod: p, Container: of.Name}}
			if of.Restarts > 0 {
				logs = append(logs, inventory.Log{Pod: p, Container: of.Name, Previous: true})
			}
			for _, l := range logs {
				l.Lines, l.Octets = reportLogLines, reportFileSize
				if err := r.archive.Add(ctx, c.logFile(l)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// logFile is the file of a log.
func (c *reportedCluster) logFile(l inventory.Log) report.File {
	name, about := l.Pod.Name+"-"+l.Container+".log", "the end of the log"
	if l.Previous {
		name, about = l.Pod.Name+"-"+l.Container+"-previous.log", "the end of the log before the last restart"
	}
	return report.File{
		Name:  "logs/" + l.Pod.Namespace + "/" + name,
		About: fmt.Sprintf("%s of container %s of Pod %s/%s", about, l.Container, l.Pod.Namespace, l.Pod.Name),
		Collect: func(ctx context.Context, w io.Writer) error {
			return c.reader.Log(ctx, w, l)
		},
	}
}

// credentials are the keys of a kubeconfig whose values are secret (client-go, clientcmd/api/v1, AuthInfo).
var credentials = []string{
	"token",
	"password",
	"client-key-data",
	"value",
	"id-token",
	"access-token",
	"refresh-token",
	"client-secret",
}

// hideKubeconfig hides the credentials in the files of a kubeconfig, and those in the files that they name.
func (r *reporter) hideKubeconfig(list string) {
	for _, file := range filepath.SplitList(list) {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it is not read for the report either
		}
		var root yaml.Node
		if err := yaml.NewDecoder(bytes.NewReader(text)).Decode(&root); err != nil && !errors.Is(err, io.EOF) {
			continue
		}
		r.hideNode(&root, filepath.Dir(file))
	}
}

func (r *reporter) hideNode(n *yaml.Node, dir string) {
	for i, child := range n.Content {
		r.hideNode(child, dir)
		if n.Kind != yaml.MappingNode || i%2 == 0 || child.Kind != yaml.ScalarNode {
			continue
		}
		switch key := n.Content[i-1].Value; {
		case slices.Contains(credentials, key):
			r.clean.Hide(child.Value)
		case key == "tokenFile" || key == "client-key":
			file := child.Value
			if !filepath.IsAbs(file) {
				file = filepath.Join(dir, file)
			}
			if text, err := os.ReadFile(file); err == nil {
				r.clean.Hide(string(text))
			}
		}
	}
}
