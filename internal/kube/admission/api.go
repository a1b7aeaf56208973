package admission

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// codecs are those of the API groups that the webhook uses.
var codecs = func() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, admissionregistrationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err) // a type registered twice, at start
		}
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return serializer.NewCodecFactory(scheme)
}()

// APIConfig configures the connection to the API server.
type APIConfig struct {
	Kubeconfig string // a file; empty selects the Pod's service account
	QPS, Burst int    // sustained requests per second, and burst
	UserAgent  string
}

// API is the webhook's client of the API server.
type API struct{ core, registration *rest.RESTClient }

// requestTime limits one request.
const requestTime = 5 * time.Second

// NewAPI returns an API. It returns an error if the kubeconfig cannot be read or is
// incomplete; it does not contact the API server.
func NewAPI(c APIConfig) (*API, error) {
	cfg, err := c.restConfig()
	if err != nil {
		return nil, err
	}
	cfg.NegotiatedSerializer = codecs.WithoutConversion()
	cfg.WarningHandler = rest.NoWarnings{} // by default it writes to standard error
	cfg.UserAgent, cfg.QPS, cfg.Burst, cfg.Timeout = c.UserAgent, float32(c.QPS), c.Burst, requestTime
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("kubernetes api: %w", err)
	}
	a := new(API)
	for _, of := range []struct {
		client **rest.RESTClient
		group  schema.GroupVersion
		path   string
	}{
		{&a.core, corev1.SchemeGroupVersion, "/api"},
		{&a.registration, admissionregistrationv1.SchemeGroupVersion, "/apis"},
	} {
		cfg := rest.CopyConfig(cfg)
		cfg.GroupVersion, cfg.APIPath = &of.group, of.path
		if *of.client, err = rest.RESTClientForConfigAndClient(cfg, client); err != nil {
			return nil, fmt.Errorf("kubernetes api: %w", err)
		}
	}
	return a, nil
}

func (c *APIConfig) restConfig() (*rest.Config, error) {
	var cfg *rest.Config
	var err error
	if c.Kubeconfig != "" {
		cfg, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	} else {
		cfg, err = rest.InClusterConfig()
	}
	switch {
	case err == nil:
		return cfg, nil
	case errors.Is(err, rest.ErrNotInCluster):
		return nil, errors.New("no cluster to serve: not running in a Pod; give --kubeconfig FILE")
	case clientcmd.IsEmptyConfig(err): // its text names another way to configure
		return nil, fmt.Errorf("kubernetes api: %s: no server: current-context leads to no cluster", c.Kubeconfig)
	}
	return nil, fmt.Errorf("kubernetes api: %w", err)
}

// Namespace returns a Namespace.
func (a *API) Namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	made := new(corev1.Namespace)
	return made, a.core.Get().Resource("namespaces").Name(name).MaxRetries(0).Do(ctx).Into(made)
}

// secret returns a Secret; nil if it does not exist.
func (a *API) secret(ctx context.Context, s ServiceName) (*corev1.Secret, error) {
	made := new(corev1.Secret)
	err := a.core.Get().Namespace(s.Namespace).Resource("secrets").Name(s.Name).MaxRetries(0).Do(ctx).Into(made)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return made, err
}

// errChanged says that another client changed the object; read it again.
var errChanged = errors.New("changed by another in the meantime")

// writeSecret replaces a Secret if it is still the version that was read.
func (a *API) writeSecret(ctx context.Context, s *corev1.Secret) error {
	err := a.core.Put().Namespace(s.Namespace).Resource("secrets").Name(s.Name).Body(s).MaxRetries(0).Do(ctx).Error()
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return errChanged
	}
	return err
}

// registration is the part of a webhook configuration that is about this webhook.
type registration struct {
	resource, name string
	version        string
	entries        []entry // webhooks of the Service
}

// entry is one webhook of a registration: its index in the list, and its CA bundle.
type entry struct {
	index  int
	bundle []byte
}

// The resources of registrations.
const (
	mutating   = "mutatingwebhookconfigurations"
	validating = "validatingwebhookconfigurations"
)

// registrations returns those of the two registrations that exist.
func (a *API) registrations(ctx context.Context, s ServiceName) ([]*registration, error) {
	var m admissionregistrationv1.MutatingWebhookConfiguration
	var v admissionregistrationv1.ValidatingWebhookConfiguration
	var all []*registration
	for _, of := range []struct {
		resource string
		into     interface {
			runtime.Object
			metav1.Object
		}
	}{{mutating, &m}, {validating, &v}} {
		err := a.registration.Get().Resource(of.resource).Name(s.Name).MaxRetries(0).Do(ctx).Into(of.into)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, &registration{resource: of.resource, name: s.Name, version: of.into.GetResourceVersion()})
	}
	for _, r := range all {
		switch r.resource {
		case mutating:
			for i, w := range m.Webhooks {
				r.add(s, i, &w.ClientConfig)
			}
		case validating:
			for i, w := range v.Webhooks {
				r.add(s, i, &w.ClientConfig)
			}
		}
	}
	return all, nil
}

// add adds a webhook if it is one of the Service.
func (r *registration) add(s ServiceName, index int, c *admissionregistrationv1.WebhookClientConfig) {
	if c.Service != nil && c.Service.Namespace == s.Namespace && c.Service.Name == s.Name {
		r.entries = append(r.entries, entry{index, c.CABundle})
	}
}

// setBundle sets the CA bundle of a registration if it is still the version that was read.
func (a *API) setBundle(ctx context.Context, r *registration, bundle []byte) error {
	patch := []operation{{"test", "/metadata/resourceVersion", r.version}}
	for _, e := range r.entries {
		patch = append(patch, operation{"add", fmt.Sprintf("/webhooks/%d/clientConfig/caBundle", e.index), bundle})
	}
	err := a.registration.Patch(types.JSONPatchType).Resource(r.resource).Name(r.name).
		Body(encode(patch)).MaxRetries(0).Do(ctx).Error()
	if testFailed(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return errChanged
	}
	return err
}

// testFailed reports whether a JSON patch could not be applied. The error then names no
// object, unlike that for a patched object that is invalid (apiserver,
// endpoints/handlers, jsonPatcher).
func testFailed(err error) bool {
	of := apierrors.APIStatus(nil)
	if !errors.As(err, &of) {
		return false
	}
	status := of.Status()
	return status.Code == http.StatusUnprocessableEntity && (status.Details == nil || status.Details.Name == "")
}
