// Package settings is what the configuration file says of the Kubernetes API and its
// parts (sections kubernetes, snapshot, simulate, webhook and controller): the keys,
// their defaults, and what they compile to.
package settings

import (
	"slices"
	"time"

	"portolan.dev/portolan/internal/config/key"
)

// Kubernetes is the section of the API server and how it is read.
type Kubernetes struct {
	// Kubeconfig is a file; when empty, the Pod's service account is used.
	Kubeconfig string `yaml:"kubeconfig"`
	// Namespaces are those that are read; all when empty.
	Namespaces []string `yaml:"namespaces"`
	// ServiceSelector is a label selector: other Services are not read.
	ServiceSelector string `yaml:"serviceSelector"`
	// QPS is how many requests a second are sent on average, Burst how many at once.
	QPS   int `yaml:"qps"`
	Burst int `yaml:"burst"`
	// WatchList receives lists as watches where the server supports it.
	WatchList bool `yaml:"watchList"`
	// Silence is how long a watch may be silent before it is started again.
	Silence key.Duration `yaml:"silence"`
}

// DefaultKubernetes returns the section of a file that lacks it.
func DefaultKubernetes() Kubernetes {
	return Kubernetes{QPS: 50, Burst: 100, Silence: key.Duration(150 * time.Second)}
}

// Check checks the section, but for what its Keys say. An error is a *key.Error.
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

// Snapshot is the section of the copy of the cluster on disk, for a start without the
// API server.
type Snapshot struct {
	File string `yaml:"file"`
	// Settle is how long names missing from the snapshot are not denied, from the
	// moment the API server answers.
	Settle key.Duration `yaml:"settle"`
}

// DefaultSnapshot returns the section of a file that lacks it.
func DefaultSnapshot() Snapshot { return Snapshot{Settle: key.Duration(2 * time.Second)} }
