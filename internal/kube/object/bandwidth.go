package object

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"portolan.dev/portolan/internal/cluster"
)

// refusedAnnotations returns the annotations of a Pod with limits of bandwidth that are invalid (Kubernetes
// documentation, "Network Plugins", "Support traffic shaping"). The API server takes any value. Container runtimes read
// them, pass the numbers to the CNI plugin, and refuse to start a Pod with others (k8s.io/kubernetes,
// pkg/util/bandwidth).
func refusedAnnotations(annotations map[string]string) (refused []cluster.RefusedAnnotation) {
	for _, name := range []string{"kubernetes.io/ingress-bandwidth", "kubernetes.io/egress-bandwidth"} {
		text, ok := annotations[name]
		if !ok {
			continue
		}
		if err := checkBandwidth(text); err != nil {
			refused = append(refused, cluster.RefusedAnnotation{Name: name, Problem: err.Error()})
		}
	}
	return refused
}

// Limits of a bandwidth, in bits per second, and of its text and exponent, in octets: of others, ParseQuantity may
// compute the digits of 10 to the power of millions.
const (
	minBandwidth = 1e3
	maxBandwidth = 1e15
	maxText      = 32
	maxExponent  = 3
)

// checkBandwidth returns an error for what is no bandwidth.
func checkBandwidth(text string) error {
	if len(text) > maxText {
		return fmt.Errorf("%q… is too long for a quantity", text[:maxText])
	}
	if i := strings.LastIndexAny(text, "eE"); i >= 0 && len(text[i+1:]) > maxExponent {
		return fmt.Errorf("%q has too large an exponent for a quantity", text)
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return fmt.Errorf("%q is not a quantity such as 10M, for 10 Mbit/s", text)
	}
	if n := q.Value(); n < minBandwidth || n > maxBandwidth {
		return fmt.Errorf("%q is not from 1k, for 1 kbit/s, to 1P", text)
	}
	return nil
}
