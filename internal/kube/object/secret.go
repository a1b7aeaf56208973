package object

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portolan.dev/portolan/internal/cluster"
)

// Secret converts a Secret. As in the API server, stringData replaces values of data.
func Secret(s *corev1.Secret) (*cluster.Secret, field.ErrorList) {
	k, errs := key(&s.ObjectMeta, validation.IsDNS1123Subdomain)
	made := &cluster.Secret{Key: k, Type: string(s.Type)}
	if made.Type == "" {
		made.Type = string(corev1.SecretTypeOpaque)
	}
	for _, name := range cluster.SecretKeys {
		value, there := s.Data[name]
		if text, plain := s.StringData[name]; plain {
			value, there = []byte(text), true
		}
		if there {
			put(&made.Data, name, cluster.Confidential(value))
		}
	}
	return made, errs
}

// ConfigMap converts a ConfigMap.
func ConfigMap(c *corev1.ConfigMap) (*cluster.ConfigMap, field.ErrorList) {
	k, errs := key(&c.ObjectMeta, validation.IsDNS1123Subdomain)
	made := &cluster.ConfigMap{Key: k}
	for _, name := range cluster.ConfigMapKeys {
		value, there := c.Data[name]
		if binary, is := c.BinaryData[name]; is {
			value, there = string(binary), true
		}
		if there {
			put(&made.Data, name, value)
		}
	}
	return made, errs
}

// put adds a value to a map, which may be nil.
func put[V any](to *map[string]V, name string, value V) {
	if *to == nil {
		*to = make(map[string]V)
	}
	(*to)[name] = value
}
