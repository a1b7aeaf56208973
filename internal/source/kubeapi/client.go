package kubeapi

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/flowcontrol"
)

// codecs know the API groups that are read, and no others.
var codecs = func() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err) // a type registered twice, at start
		}
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return serializer.NewCodecFactory(scheme)
}()

// clients ask the API. They are made anew from the same configuration file
// after each failure: the address, the certificates or the token in it may be
// others now.
type clients struct {
	cfg *Config
	// limit holds for all requests, whatever client sends them.
	limit flowcontrol.RateLimiter

	mu      sync.Mutex
	byGroup map[schema.GroupVersion]*rest.RESTClient
}

func newClients(cfg *Config) (*clients, error) {
	c := &clients{cfg: cfg, limit: flowcontrol.NewTokenBucketRateLimiter(cfg.QPS, cfg.Burst)}
	return c, c.renew()
}

// renew makes the clients from the configuration as it is now.
func (c *clients) renew() error {
	cfg, err := c.restConfig()
	if err != nil {
		return err
	}
	byGroup := make(map[schema.GroupVersion]*rest.RESTClient)
	for _, r := range resources {
		if byGroup[r.group] != nil {
			continue
		}
		of := rest.CopyConfig(cfg)
		of.GroupVersion, of.APIPath = &r.group, "/apis"
		if r.group.Group == "" {
			of.APIPath = "/api"
		}
		if byGroup[r.group], err = rest.RESTClientFor(of); err != nil {
			return fmt.Errorf("kubernetes api: %w", err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byGroup = byGroup
	return nil
}

func (c *clients) restConfig() (cfg *rest.Config, err error) {
	if c.cfg.Kubeconfig == "" {
		cfg, err = rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, errors.New("no cluster to read: this is no Pod of a cluster; give --kubeconfig FILE or --manifests DIR")
		}
	} else {
		cfg, err = clientcmd.BuildConfigFromFlags("", c.cfg.Kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("kubernetes api: %w", err)
	}
	cfg.ContentType = runtime.ContentTypeProtobuf
	cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	cfg.NegotiatedSerializer = codecs.WithoutConversion()
	cfg.UserAgent = c.cfg.UserAgent
	cfg.RateLimiter = c.limit
	return cfg, nil
}

// request begins a request for the objects of a reading.
func (c *clients) request(r *reading, options metav1.ListOptions) *rest.Request {
	options.LabelSelector, options.FieldSelector = r.scope.labels, r.scope.fields
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byGroup[r.resource.group].Get().
		NamespaceIfScoped(r.scope.namespace, r.scope.namespace != "").
		Resource(r.resource.name).
		VersionedParams(&options, metav1.ParameterCodec)
}

func (c *clients) list(ctx context.Context, r *reading, options metav1.ListOptions) (runtime.Object, error) {
	return c.request(r, options).Do(ctx).Get()
}

func (c *clients) watch(ctx context.Context, r *reading, options metav1.ListOptions) (watch.Interface, error) {
	options.Watch = true
	// client-go holds to the limit in everything but watches.
	if err := c.limit.Wait(ctx); err != nil {
		return nil, err
	}
	return c.request(r, options).Watch(ctx)
}
