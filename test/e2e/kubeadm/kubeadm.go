// Package kubeadm has the manifests of CoreDNS that kubeadm installs, out of its
// source: the package cmd/kubeadm/app/phases/addons/dns of the module that the
// control plane's API server is of.
package kubeadm

import (
	"bytes"
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"
)

// DNSIP is the cluster IP that kubeadm gives the Service kube-dns: the tenth address
// of its range of Services.
const DNSIP = "10.96.0.10"

// kinds are those of the objects, in the order in which they are created.
var kinds = []string{"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "ConfigMap", "Deployment", "Service"}

// CoreDNS returns the manifests as one stream of documents, for a cluster with the
// zone cluster.local and the default range of Services.
func CoreDNS(ctx context.Context) (string, error) {
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes")
	dir, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("kubeadm: %s: %w", list, err)
	}
	file := filepath.Join(strings.TrimSpace(string(dir)), "cmd/kubeadm/app/phases/addons/dns/manifests.go")
	texts, err := constants(file)
	if err != nil {
		return "", fmt.Errorf("kubeadm: %w", err)
	}
	var documents []string
	for _, kind := range kinds {
		manifest, err := template.New(kind).Option("missingkey=error").Parse(texts["CoreDNS"+kind])
		if err != nil {
			return "", fmt.Errorf("kubeadm: %w", err)
		}
		var made bytes.Buffer
		err = manifest.Execute(&made, map[string]any{
			"DNSDomain": "cluster.local", "DNSIP": DNSIP, "DeploymentName": "coredns", "Replicas": 2,
			"ControlPlaneTaintKey": "node-role.kubernetes.io/control-plane", "Image": "registry.k8s.io/coredns/coredns",
		})
		if err != nil {
			return "", fmt.Errorf("kubeadm: %w", err)
		}
		documents = append(documents, made.String())
	}
	return strings.Join(documents, "\n---\n"), nil
}

// constants returns the strings that are constants of a Go file, by their names.
func constants(file string) (map[string]string, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		return nil, err
	}
	texts := make(map[string]string)
	ast.Inspect(parsed, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			for i, value := range spec.Values {
				if literal, ok := value.(*ast.BasicLit); ok && literal.Kind == token.STRING {
					texts[spec.Names[i].Name], _ = strconv.Unquote(literal.Value) // it was parsed
				}
			}
		}
		return true
	})
	return texts, nil
}
