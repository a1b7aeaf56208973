package simulate

import (
	"encoding/json"
	"fmt"
	"hash/fnv"

	"portolan.dev/portolan/internal/cluster"
)

// letters are those that Kubernetes makes names of by chance from: no vowels,
// and nothing that looks like another (k8s.io/apimachinery/pkg/util/rand).
const letters = "bcdfghjklmnpqrstvwxz2456789"

// Lengths of what is put behind a name: the hash of a template, and what is by
// chance; and of the name that may stand before the latter
// (k8s.io/apiserver/pkg/storage/names).
const (
	hashLetters   = 10
	chanceLetters = 5
	maxGenerated  = 63 - chanceLetters
)

// scramble are letters that depend on what is given: where Kubernetes takes them
// by chance, the same manifests give the same names here.
func scramble(n int, of ...any) string {
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

// generated is a name that Kubernetes makes of a prefix; i tells those of one
// prefix apart.
func generated(prefix string, i int) string {
	text := scramble(chanceLetters, prefix, i)
	return prefix[:min(len(prefix), maxGenerated)] + text
}

// templateHash stands for the hash of a Deployment's template, which its Pods
// have in their names and in a label.
func templateHash(w *cluster.Workload) string {
	spec, _ := json.Marshal(&w.Spec) // plain values
	return scramble(hashLetters, w.Name, w.Labels, string(spec))
}
