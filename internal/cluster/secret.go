package cluster

import "strconv"

// Secret is a Secret that an object refers to. Sources read others from manifests only.
type Secret struct {
	Key
	Type string
	// Data are the values of the keys SecretKeys; keys that are not there are missing.
	Data map[string]Confidential
}

// SecretKeys are the keys of Secrets that the model has: certificate, private key, authorities and the
// users of basic authentication.
var SecretKeys = []string{"tls.crt", "tls.key", "ca.crt", "auth"}

// Confidential is a value that must not be printed: it is formatted and encoded in JSON as its length.
type Confidential []byte

// String returns the length.
func (c Confidential) String() string { return strconv.Itoa(len(c)) + " confidential octets" }

// GoString returns the length.
func (c Confidential) GoString() string { return c.String() }

// MarshalJSON returns the length.
func (c Confidential) MarshalJSON() ([]byte, error) { return []byte(strconv.Quote(c.String())), nil }

// ConfigMap is a ConfigMap that an object refers to. Sources read others from manifests only.
type ConfigMap struct {
	Key
	// Data are the values of the keys ConfigMapKeys; keys that are not there are missing.
	Data map[string]string
}

// ConfigMapKeys are the keys of ConfigMaps that the model has: the certificates of authorities.
var ConfigMapKeys = []string{"ca.crt"}

// Ref returns kind and key.
func (s *Secret) Ref() Ref { return Ref{KindSecret, s.Key} }

// Ref returns kind and key.
func (c *ConfigMap) Ref() Ref { return Ref{KindConfigMap, c.Key} }
