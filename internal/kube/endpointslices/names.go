package endpointslices

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strconv"

	discoveryv1 "k8s.io/api/discovery/v1"

	"portolan.dev/portolan/internal/cluster"
)

// Names have the form that the API server generates for generateName: the Service's
// name, a dash and five of these letters (k8s.io/apiserver, names.Generator). They
// are not random: the slices of a Service get the same names each time.
const (
	nameLetters = "bcdfghjklmnpqrstvwxz2456789"
	nameSuffix  = 5
	nameLength  = 63
)

// sliceName returns the n-th candidate for the name of a Service's slice.
func sliceName(service cluster.Key, n int) string {
	h := fnv.New64a()
	for _, part := range []string{service.Namespace, service.Name, strconv.Itoa(n)} {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	sum := h.Sum64()
	sum ^= sum >> 32 // FNV mixes the last bytes mostly into the low bits
	prefix := service.Name + "-"
	name := make([]byte, 0, nameLength)
	name = append(name, prefix[:min(len(prefix), nameLength-nameSuffix)]...)
	for range nameSuffix {
		name = append(name, nameLetters[sum%uint64(len(nameLetters))])
		sum /= uint64(len(nameLetters))
	}
	return string(name)
}

// name gives names to slices that have none yet, in the order of j.written, and
// avoids the names of declared slices.
func (j *job) name() {
	taken := make(map[string]bool, len(j.slices))
	for _, s := range j.slices {
		taken[s.Name] = true
	}
	n := 0
	for _, s := range j.written {
		if s.Name != "" {
			continue
		}
		for s.Name == "" || taken[s.Name] || j.isDeclared(s.Name) {
			s.Name = sliceName(j.key, n)
			n++
		}
		taken[s.Name] = true
	}
	slices.SortFunc(j.slices, func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
}

// isDeclared reports whether the model has a slice of that name that was not
// generated for this Service.
func (j *job) isDeclared(name string) bool {
	s := j.sliceAt(cluster.Key{Namespace: j.key.Namespace, Name: name})
	return s != nil && !j.previous.contains(s)
}
