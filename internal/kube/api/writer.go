package api

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// ClientConfig is what NewClient makes a client from.
type ClientConfig struct {
	// Kubeconfig is a file that says where the API is and who asks; empty is the
	// account of the Pod that this runs in.
	Kubeconfig string
	// QPS is how many requests a second are sent over time, and Burst how many at
	// once; more wait.
	QPS   float32
	Burst int
	// Timeout bounds a request, watches too; 0 is no bound.
	Timeout   time.Duration
	UserAgent string
}

// NewClient makes a client for those who write. It fails when the kubeconfig
// can't be read or says too little; it does not ask the API.
func NewClient(c ClientConfig) (kubernetes.Interface, error) {
	cfg, err := restConfig(c.Kubeconfig)
	if err != nil {
		return nil, err
	}
	cfg.ContentType = runtime.ContentTypeProtobuf
	cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	cfg.WarningHandler = rest.NoWarnings{} // it would write lines of its own
	cfg.QPS, cfg.Burst, cfg.Timeout, cfg.UserAgent = c.QPS, c.Burst, c.Timeout, c.UserAgent
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("kubernetes api: %w", err)
	}
	return client, nil
}
