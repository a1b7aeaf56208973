package apiobject

import (
	"testing"

	"portolan.dev/portolan/internal/cluster"
)

// TestShortNames checks that it is known of each kind which short name it has, and that no
// two have the same.
func TestShortNames(t *testing.T) {
	t.Parallel()
	of := make(map[string]cluster.Kind)
	for _, k := range cluster.Kinds() {
		name, known := shortNames[k]
		if !known {
			t.Errorf("shortNames lacks %s; give its short name, or an empty one", k)
		}
		if other, twice := of[name]; twice && name != "" {
			t.Errorf("ShortName(%s) = %q, which is that of %s", k, name, other)
		}
		of[name] = k
	}
}
