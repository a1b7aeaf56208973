package object

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portolan.dev/portolan/internal/cluster"
)

// TestRefusedAnnotations: limits of bandwidth are valid, or it is said why not.
func TestRefusedAnnotations(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("9", 33)
	const noQuantity, range1 = " is not a quantity such as 10M, for 10 Mbit/s", " is not from 1k, for 1 kbit/s, to 1P"
	for value, want := range map[string]string{
		"1k": "", "10M": "", "1.5G": "", "1P": "", "1e6": "", "1000": "", "4Mi": "",
		"": noQuantity, "10Mbps": noQuantity, "fast": noQuantity, "10 M": noQuantity,
		"1e999999999999": " has too large an exponent for a quantity", "1E-99999999": " has too large an exponent for a quantity",
		"1e999": range1, "1E18": range1, "1e-9": range1, "1E": range1, "999": range1, "0": range1, "-1M": range1, long: "… is too long for a quantity", "2P": range1, "500m": range1,
	} {
		for _, name := range []string{"kubernetes.io/ingress-bandwidth", "kubernetes.io/egress-bandwidth"} {
			spec := PodSpec(&metav1.ObjectMeta{Annotations: map[string]string{name: value, "other": "x"}}, &corev1.PodSpec{})
			var all []cluster.RefusedAnnotation
			if want != "" {
				all = []cluster.RefusedAnnotation{{Name: name, Problem: strconv.Quote(value) + want}}
			}
			if value == long {
				all[0].Problem = strconv.Quote(long[:32]) + want
			}
			if !slices.Equal(spec.Refused, all) {
				t.Errorf("%s: %q: refused %v, want %v", name, value, spec.Refused, all)
			}
		}
	}
}
