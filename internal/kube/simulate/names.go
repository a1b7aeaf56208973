package simulate

import (
	"encoding/json"
	"fmt"
	"hash/fnv"

	"portolan.dev/portolan/internal/cluster"
)

// letters are those of random names in Kubernetes: no vowels, and none that looks like
// another (k8s.io/apimachinery/pkg/util/rand).
const letters = "bcdfghjklmnpqrstvwxz2456789"

// Lengths of the suffixes of a name, the hash of a template and the random one, and of
// the name before the latter (k8s.io/apiserver/pkg/storage/names).
const (
	hashLetters   = 10
	randomLetters = 5
	maxPrefix     = 63 - randomLetters
)

// pseudoRandom returns n letters that are a function of the values: where names are
// random in Kubernetes, the same manifests give the same names here.
func pseudoRandom(n int, of ...any) string {
	h := fnv.New64a()
	fmt.Fprint(h, of...)
	sum := h.Sum64()
	text := make([]byte, n)
	for i := range text {
		text[i] = letters[sum%uint64(len(letters))]
		sum /= uint64(len(letters))
	}
	return string(text)
}

// generated returns the i-th name of those that Kubernetes generates from a prefix.
func generated(prefix string, i int) string {
	text := pseudoRandom(randomLetters, prefix, i)
	return prefix[:min(len(prefix), maxPrefix)] + text
}

// templateHash returns the hash of a Deployment's template, which its Pods have in
// their names and in a label.
func templateHash(w *cluster.Workload) string {
	spec, _ := json.Marshal(&w.Spec) // plain values
	return pseudoRandom(hashLetters, w.Name, w.Labels, string(spec))
}
