package endpointslices

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strconv"

	discoveryv1 "k8s.io/api/discovery/v1"

	"portolan.dev/portolan/internal/cluster"
)

// Names are of the form that the API server gives by generateName: the Service's
// name, a dash and five of these letters (k8s.io/apiserver, names.Generator). But
// they are not random: the same Service's slices are called the same each time.
const (
	nameLetters = "bcdfghjklmnpqrstvwxz2456789"
	nameSuffix  = 5
	nameLength  = 63
)

// sliceName is the name number n of a Service's slices.
func sliceName(service cluster.Key, n int) string {
	h := fnv.New64a()
	for _, part := range []string{service.Namespace, service.Name, strconv.Itoa(n)} {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	sum := h.Sum64()
	sum ^= sum >> 32 // the last bytes move the low bits most
	prefix := service.Name + "-"
	name := make([]byte, 0, nameLength)
	name = append(name, prefix[:min(len(prefix), nameLength-nameSuffix)]...)
	for range nameSuffix {
		name = append(name, nameLetters[sum%uint64(len(nameLetters))])
		sum /= uint64(len(nameLetters))
	}
	return string(name)
}

// name names slices that have no name yet, in the order they were written in, as
// nothing is called that is not ours.
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
		for s.Name == "" || taken[s.Name] || j.isOthers(s.Name) {
			s.Name = sliceName(j.key, n)
			n++
		}
		taken[s.Name] = true
	}
	slices.SortFunc(j.slices, func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
}

// isOthers tells whether the model has a slice of that name that is not ours.
func (j *job) isOthers(name string) bool {
	s := j.at(cluster.Key{Namespace: j.key.Namespace, Name: name})
	return s != nil && !j.old.has(s)
}
