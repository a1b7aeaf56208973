package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/connrotation"
	"k8s.io/client-go/util/flowcontrol"

	"portolan.dev/portolan/internal/kube/object"
	"portolan.dev/portolan/internal/support/deadline"
)

// codecs know the API groups of object.Kinds, and no others.
var codecs = func() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	for _, k := range object.Kinds {
		if scheme.IsVersionRegistered(k.Group.GroupVersion) {
			continue
		}
		if err := k.Group.AddToScheme(scheme); err != nil {
			panic(err) // a type registered twice, at start
		}
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return serializer.NewCodecFactory(scheme)
}()

// ErrNoCluster is New's error when it is not told which cluster to read.
var ErrNoCluster = errors.New(
	"no cluster to read: not running in a Pod; give --kubeconfig FILE or --manifests DIR")

// clients are the REST clients, one per API group. They are made again after a
// failure if the configuration changed: its address, certificates or token.
type clients struct {
	cfg *Config
	// limit and dialer are shared by all clients.
	limit  flowcontrol.RateLimiter
	dialer *connrotation.Dialer

	mu      sync.Mutex
	from    *rest.Config // what the clients were made from
	byGroup map[schema.GroupVersion]*rest.RESTClient
}

func newClients(cfg *Config) (*clients, error) {
	dial := net.Dialer{Timeout: 10 * time.Second}
	c := &clients{
		cfg:    cfg,
		limit:  flowcontrol.NewTokenBucketRateLimiter(cfg.QPS, cfg.Burst),
		dialer: connrotation.NewDialer(dial.DialContext),
	}
	return c, c.renew()
}

// renew makes the clients again if the configuration changed.
func (c *clients) renew() error {
	cfg, err := c.restConfig()
	if err != nil {
		return err
	}
	from := rest.CopyConfig(cfg)
	from.Proxy = nil // functions can't be compared
	if err := rest.LoadTLSFiles(from); err != nil {
		return fmt.Errorf("kubernetes api: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if reflect.DeepEqual(from, c.from) {
		return nil
	}
	byGroup, err := c.connect(cfg)
	if err != nil {
		return fmt.Errorf("kubernetes api: %w", err)
	}
	c.from, c.byGroup = from, byGroup
	return nil
}

// connect returns a client for each group; they share connections.
func (c *clients) connect(cfg *rest.Config) (map[schema.GroupVersion]*rest.RESTClient, error) {
	cfg.ContentType = runtime.ContentTypeProtobuf
	cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	cfg.NegotiatedSerializer = cuttingCodecs{codecs.WithoutConversion(), c.cfg.kept()}
	cfg.UserAgent = c.cfg.UserAgent
	cfg.RateLimiter = c.limit
	cfg.Dial = c.dialer.DialContext
	cfg.Wrap(newUnzipper)
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	byGroup := make(map[schema.GroupVersion]*rest.RESTClient)
	for _, k := range object.Kinds {
		group := k.Group.GroupVersion
		if byGroup[group] != nil {
			continue
		}
		of := rest.CopyConfig(cfg)
		of.GroupVersion, of.APIPath = &group, "/apis"
		if group.Group == "" {
			of.APIPath = "/api"
		}
		if byGroup[group], err = rest.RESTClientForConfigAndClient(of, client); err != nil {
			return nil, err
		}
	}
	return byGroup, nil
}

func (c *clients) restConfig() (*rest.Config, error) {
	return restConfig(c.cfg.Kubeconfig, c.cfg.Context)
}

// restConfig reads a kubeconfig or, without one, the Pod's service account, which has no
// contexts.
func restConfig(kubeconfig, context string) (cfg *rest.Config, err error) {
	if kubeconfig == "" && context != "" {
		return nil, fmt.Errorf("context %q: there is no kubeconfig; give --kubeconfig FILE", context)
	}
	if kubeconfig == "" {
		cfg, err = rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, ErrNoCluster
		}
	} else {
		cfg, err = fromKubeconfig(kubeconfig, context)
	}
	if err != nil {
		return nil, fmt.Errorf("kubernetes api: %w", err)
	}
	return cfg, nil
}

// loadKubeconfig reads a kubeconfig file, or merges the files of a list, of which some may
// be missing.
func loadKubeconfig(kubeconfig string) (*clientcmdapi.Config, *clientcmd.ClientConfigLoadingRules, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}
	files := filepath.SplitList(kubeconfig)
	if len(files) > 1 {
		rules = &clientcmd.ClientConfigLoadingRules{Precedence: files}
	}
	for _, file := range files {
		// The library would read without an end.
		_, err := deadline.ReadFile(file, kubeconfigTime, maxKubeconfig)
		if err != nil && (len(files) == 1 || !errors.Is(err, fs.ErrNotExist)) {
			return nil, rules, err
		}
	}
	loaded, err := rules.Load()
	return loaded, rules, err
}

// Limits of reading a kubeconfig file. Those of large companies have some hundred contexts,
// of 4 KiB each.
const (
	kubeconfigTime = 3 * time.Second
	maxKubeconfig  = 4 << 20
)

func fromKubeconfig(kubeconfig, context string) (*rest.Config, error) {
	loaded, rules, err := loadKubeconfig(kubeconfig)
	if err == nil && context != "" && loaded.Contexts[context] == nil {
		names := strings.Join(slices.Sorted(maps.Keys(loaded.Contexts)), ", ")
		return nil, fmt.Errorf("%s: no context %q; there are %s", kubeconfig, context, cmp.Or(names, "none"))
	}
	var cfg *rest.Config
	if err == nil {
		cfg, err = clientcmd.NewNonInteractiveClientConfig(
			*loaded,
			context,
			&clientcmd.ConfigOverrides{},
			rules,
		).ClientConfig()
	}
	switch {
	case err == nil:
		return cfg, nil
	case clientcmd.IsEmptyConfig(err): // its text names another way to configure
		return nil, fmt.Errorf("%s: no server: current-context leads to no cluster", kubeconfig)
	case !strings.Contains(err.Error(), kubeconfig):
		return nil, fmt.Errorf("%s: %w", kubeconfig, err)
	}
	return nil, err
}

// accountDir has the Pod's service account in its containers.
const accountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// DefaultNamespace returns the namespace of a context of a kubeconfig, as in Config, without
// one that of the Pod's service account, or "default" if there is none.
func DefaultNamespace(kubeconfig, context string) (string, error) {
	const none = "default"
	if kubeconfig == "" {
		return cmp.Or(accountNamespace(accountDir), none), nil
	}
	loaded, _, err := loadKubeconfig(kubeconfig)
	if err != nil {
		return none, fmt.Errorf("kubernetes api: %w", err)
	}
	if c := loaded.Contexts[cmp.Or(context, loaded.CurrentContext)]; c != nil && c.Namespace != "" {
		return c.Namespace, nil
	}
	return none, nil
}

// accountNamespace returns the namespace in a directory with a service account, "" if there
// is no account.
func accountNamespace(dir string) string {
	text, err := os.ReadFile(filepath.Join(dir, "namespace"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// Contexts returns the names of the contexts of a kubeconfig, sorted.
func Contexts(kubeconfig string) ([]string, error) {
	loaded, _, err := loadKubeconfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubernetes api: %w", err)
	}
	return slices.Sorted(maps.Keys(loaded.Contexts)), nil
}

// request returns a request for the objects of a reading.
func (c *clients) request(r *reading, options metav1.ListOptions) *rest.Request {
	options.LabelSelector, options.FieldSelector = r.scope.labels, r.scope.fields
	c.mu.Lock()
	defer c.mu.Unlock()
	request := c.byGroup[r.resource.Group.GroupVersion].Get().
		NamespaceIfScoped(r.scope.namespace, r.scope.namespace != "").
		Resource(r.resource.Resource).
		VersionedParams(&options, metav1.ParameterCodec).
		MaxRetries(0) // which would be ten, unseen; the Reflector tries again
	r.server = request.URL().Host
	return request
}

func (c *clients) watch(ctx context.Context, r *reading, options metav1.ListOptions) (watch.Interface, error) {
	options.Watch = true
	return c.request(r, options).Watch(ctx)
}
