package simulate

import (
	"encoding/json"
	"fmt"
	"hash/fnv"

	"portolan.dev/portolan/internal/cluster"
)

// suffixAlphabet are the characters of random suffixes in Kubernetes: no vowels and no
// similar characters (k8s.io/apimachinery/pkg/util/rand).
const suffixAlphabet = "bcdfghjklmnpqrstvwxz2456789"

// Lengths of the template hash and of the random suffix in names, and the maximum length
// of the prefix before the suffix (k8s.io/apiserver/pkg/storage/names).
const (
	hashLength      = 10
	suffixLength    = 5
	maxPrefixLength = 63 - suffixLength
)

// pseudoRandomSuffix returns n characters that are a function of the values. Kubernetes
// generates them randomly; here the same manifests produce the same names.
func pseudoRandomSuffix(n int, of ...any) string {
	h := fnv.New64a()
	fmt.Fprint(h, of...)
	sum := h.Sum64()
	text := make([]byte, n)
	for i := range text {
		text[i] = suffixAlphabet[sum%uint64(len(suffixAlphabet))]
		sum /= uint64(len(suffixAlphabet))
	}
	return string(text)
}

// generateName returns the i-th name generated from a prefix, as for
// metadata.generateName.
func generateName(prefix string, i int) string {
	text := pseudoRandomSuffix(suffixLength, prefix, i)
	return prefix[:min(len(prefix), maxPrefixLength)] + text
}

// templateHash returns a hash of a Deployment's Pod template. It is part of the names of
// its Pods and the value of their label pod-template-hash.
func templateHash(w *cluster.Workload) string {
	spec, _ := json.Marshal(&w.Spec) //nolint:errchkjson // plain values
	return pseudoRandomSuffix(hashLength, w.Name, w.Labels, string(spec))
}
