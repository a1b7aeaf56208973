package api

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// ClientConfig configures a client.
type ClientConfig struct {
	// Kubeconfig is a file with the API server's address and credentials; empty is
	// the service account of the Pod that this runs in.
	Kubeconfig string
	// Context is one of the kubeconfig; empty is its current one.
	Context string
	// QPS limits the requests per second on average, and Burst those at once; more
	// wait.
	QPS   float32
	Burst int
	// Timeout limits each request, watches included; 0 is no limit.
	Timeout   time.Duration
	UserAgent string
}

// NewClient returns a client for programs that write objects, or read what the model does not have. It fails when the
// kubeconfig can't be read or is incomplete; it does not connect.
func NewClient(c ClientConfig) (kubernetes.Interface, error) {
	cfg, err := c.restConfig()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("kubernetes api: %w", err)
	}
	return client, nil
}

// NewRESTClient is NewClient for requests to absolute paths, with bodies in JSON.
func NewRESTClient(c ClientConfig) (rest.Interface, error) {
	cfg, err := c.restConfig()
	if err != nil {
		return nil, err
	}
	cfg.ContentType, cfg.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	cfg.NegotiatedSerializer = codecs.WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("kubernetes api: %w", err)
	}
	return client, nil
}

func (c *ClientConfig) restConfig() (*rest.Config, error) {
	cfg, err := restConfig(c.Kubeconfig, c.Context)
	if err != nil {
		return nil, err
	}
	cfg.ContentType = runtime.ContentTypeProtobuf
	cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	cfg.WarningHandler = rest.NoWarnings{} // it would write lines of its own
	cfg.QPS, cfg.Burst, cfg.Timeout, cfg.UserAgent = c.QPS, c.Burst, c.Timeout, c.UserAgent
	return cfg, nil
}
