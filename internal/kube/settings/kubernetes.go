// Package settings has the sections of the configuration file for the Kubernetes API
// and its clients (sections kubernetes, snapshot, simulate, webhook and controller):
// their keys, defaults and compiled forms.
package settings

import (
	"slices"
	"time"

	"portolan.dev/portolan/internal/config/key"
)

// Kubernetes is the section of the API server and of how it is read.
type Kubernetes struct {
	// Kubeconfig is a file; if empty, the Pod's service account is used.
	Kubeconfig string `yaml:"kubeconfig"`
	// Namespaces are the namespaces to read; all when empty.
	Namespaces []string `yaml:"namespaces"`
	// ServiceSelector is a label selector for the Services to read.
	ServiceSelector string `yaml:"serviceSelector"`
	// QPS is the average number of requests per second, and Burst the highest number at
	// once.
	QPS   int `yaml:"qps"`
	Burst int `yaml:"burst"`
	// WatchList receives lists as watches if the server supports that.
	WatchList bool `yaml:"watchList"`
	// Silence is how long a watch may be silent before it is restarted.
	Silence key.Duration `yaml:"silence"`
}

// DefaultKubernetes returns the section of a file that lacks it.
func DefaultKubernetes() Kubernetes {
	return Kubernetes{QPS: 50, Burst: 100, Silence: key.Duration(150 * time.Second)}
}

// Check checks the section, except for the checks in Keys. Its error is a *key.Error.
func (k *Kubernetes) Check() error {
	for i, ns := range k.Namespaces {
		if ns == "" {
			return key.ItemErrorf("kubernetes.namespaces", i, "an empty name")
		}
		if slices.Contains(k.Namespaces[:i], ns) {
			return key.ItemErrorf("kubernetes.namespaces", i, "%q is given twice", ns)
		}
	}
	return nil
}

// Snapshot is the section of the copy of the cluster on disk, which allows a start
// without the API server.
type Snapshot struct {
	File string `yaml:"file"`
	// Settle is how long, after the API server first answers, names missing from the
	// snapshot do not get NXDOMAIN.
	Settle key.Duration `yaml:"settle"`
}

// DefaultSnapshot returns the section of a file that lacks it.
func DefaultSnapshot() Snapshot { return Snapshot{Settle: key.Duration(2 * time.Second)} }
