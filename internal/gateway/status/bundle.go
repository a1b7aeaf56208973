package status

import (
	"embed"
	"fmt"
	"maps"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/cluster"
)

// featureList has a feature a line, in order. The conformance test writes it: it has the features of which every
// test of the suite passed.
//
//go:embed features.txt features-experimental.txt
var featureLists embed.FS

// Features returns the names of the features that GatewayClasses have (GatewayClassStatus.supportedFeatures), with or
// without those of the experimental channel.
func Features(experimental bool) []string {
	name := "features.txt"
	if experimental {
		name = "features-experimental.txt"
	}
	text, err := featureLists.ReadFile(name)
	if err != nil {
		panic(err) // it is embedded
	}
	return strings.Fields(string(text))
}

// release is what the versions of Gateway API begin with that Portolan is tested with (annotation
// gateway.networking.k8s.io/bundle-version of the CustomResourceDefinitions).
const release = "v1.6."

// Bundle is the version of Gateway API that a cluster has.
type Bundle struct {
	// Versions are those of the CustomResourceDefinitions that exist, by name; empty for one that does not say.
	Versions map[string]string
	// Err is why they cannot be read.
	Err error
}

// condition returns the condition SupportedVersion.
func (b *Bundle) condition() cluster.Condition {
	if b.Err != nil || len(b.Versions) == 0 {
		message := "the cluster has no CustomResourceDefinition of Gateway API"
		if b.Err != nil {
			message = b.Err.Error()
		}
		return cluster.Condition{Type: supportedVersion, Status: "Unknown", Reason: "Pending", Message: message}
	}
	for _, name := range slices.Sorted(maps.Keys(b.Versions)) {
		version := b.Versions[name]
		switch {
		case version == "":
			version = "an unknown version"
		case strings.HasPrefix(version, release):
			continue
		}
		return cluster.Condition{
			Type: supportedVersion, Status: "False", Reason: "UnsupportedVersion",
			Message: fmt.Sprintf("%s has %s; supported is %sx", name, version, release),
		}
	}
	return yes(supportedVersion, supportedVersion, "")
}

// equal reports whether bundles give the same condition.
func (b *Bundle) equal(o *Bundle) bool {
	return b == o || b != nil && o != nil && b.condition() == o.condition()
}
