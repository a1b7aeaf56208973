package deploy

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	kubeobject "portolan.dev/portolan/internal/kube/object"
)

const routePolicies = "/crds/routepolicies.yaml"

// routePolicySchema returns the schema of RoutePolicies, of a definition that an API server takes.
func routePolicySchema(t *testing.T) *apiextensions.JSONSchemaProps {
	t.Helper()
	text, err := os.ReadFile(chartDir + routePolicies)
	if err != nil {
		t.Fatal(err)
	}
	var v1 apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(text, &v1); err != nil {
		t.Fatal(err)
	}
	apiextensionsv1.SetDefaults_CustomResourceDefinition(&v1)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&v1.Spec)
	v1.Status.StoredVersions = []string{"v1alpha1"}
	made := new(apiextensions.CustomResourceDefinition)
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&v1, made, nil); err != nil {
		t.Fatal(err)
	}
	for _, err := range crdvalidation.ValidateCustomResourceDefinition(t.Context(), made) {
		t.Errorf("%s: %v", routePolicies, err)
	}
	if made.Spec.Validation != nil {
		return made.Spec.Validation.OpenAPIV3Schema
	}
	return made.Spec.Versions[0].Schema.OpenAPIV3Schema
}

// routePolicyErrors returns what an API server finds wrong with a RoutePolicy.
func routePolicyErrors(t *testing.T, schema *apiextensions.JSONSchemaProps, policy map[string]any) (all []string) {
	t.Helper()
	structural, err := structuralschema.NewStructural(schema)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range pruning.PruneWithOptions(policy, structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		all = append(all, path+": unknown")
	}
	validator, _, err := validation.NewSchemaValidator(schema)
	if err != nil {
		t.Fatal(err)
	}
	errs := validation.ValidateCustomResource(nil, policy, validator)
	rules, _ := cel.NewValidator(structural, true, celconfig.PerCallLimit).Validate(
		t.Context(), field.NewPath(""), structural, policy, nil, celconfig.RuntimeCELCostBudget,
	)
	for _, err := range append(errs, rules...) {
		all = append(all, err.Error())
	}
	return all
}

// TestRoutePolicyDefinition: an API server takes what gateway-policy.md shows, and refuses what cannot be obeyed.
func TestRoutePolicyDefinition(t *testing.T) {
	schema := routePolicySchema(t)
	page, err := os.ReadFile("../../docs/gateway-policy.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(page), "```yaml\n")
	example, _, _ = strings.Cut(example, "```\n")
	example, _, _ = strings.Cut(example, "status:") // which nobody but a gateway writes
	document := func(text string) map[string]any {
		made := make(map[string]any)
		inJSON, err := yaml.YAMLToJSON([]byte(text))
		if err == nil {
			err = utiljson.Unmarshal(inJSON, &made)
		}
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	if errs := routePolicyErrors(t, schema, document(example)); len(errs) > 0 {
		t.Errorf("the policy in gateway-policy.md: %q", errs)
	}
	inJSON, err := yaml.YAMLToJSON([]byte(example))
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(inJSON))
	decoder.DisallowUnknownFields()
	api := new(kubeobject.APIRoutePolicy)
	if err := decoder.Decode(api); err != nil {
		t.Errorf("the policy in gateway-policy.md: %v", err)
	}
	made, errs := kubeobject.RoutePolicy(api)
	if len(errs) > 0 || len(made.Targets)*len(made.Allow)*len(made.Deny)*len(made.Limits) == 0 ||
		made.Concurrent == nil || made.MaxBody == 0 || made.Passwords == nil {
		t.Errorf("the policy in gateway-policy.md is read as %+v, %v", made, errs)
	}
	for spec, want := range map[string]string{
		"targetRefs: []": "spec.targetRefs",
		"targetRefs: [{kind: HTTPRoute, name: web}]":   "spec.targetRefs[0].group",
		"allow: [example.com]":                         "spec.allow[0]",
		"deny: [10.0.0.0/1000]":                        "spec.deny[0]",
		"rateLimits: [{requests: 0, per: 1s}]":         "spec.rateLimits[0].requests",
		"rateLimits: [{requests: 1, per: 10ms}]":       "spec.rateLimits[0].per",
		"rateLimits: [{requests: 1, per: 61m}]":        "spec.rateLimits[0].per",
		"rateLimits: [{requests: 1}]":                  "spec.rateLimits[0].per",
		"concurrentRequests: {except: [10.0.0.1]}":     "spec.concurrentRequests.max",
		"maxBodySize: 0":                               "spec.maxBodySize",
		"maxBodySize: 500m":                            "spec.maxBodySize",
		"basicAuth: {realm: Shop}":                     "spec.basicAuth.secretRef",
		"basicAuth: {secretRef: {name: a}, format: X}": "spec.basicAuth.format",
		"denied: [10.0.0.1]":                           "spec.denied: unknown",
	} {
		policy := document(example)
		maps.Copy(policy["spec"].(map[string]any), document(spec))
		if errs := routePolicyErrors(t, schema, policy); len(errs) == 0 || !strings.Contains(errs[0], want) {
			t.Errorf("%s: %q, want an error of %s", spec, errs, want)
		}
	}
}

// TestRoutePolicyDefinitionIsOne: the chart and the kustomization have the same definition.
func TestRoutePolicyDefinitionIsOne(t *testing.T) {
	all := kustomized(t, "gateway-crds")
	if len(all) != 1 {
		t.Errorf("gateway-crds has %d objects, want the definition alone", len(all))
	}
	for key, o := range all {
		text, err := os.ReadFile(chartDir + routePolicies)
		if err != nil {
			t.Fatal(err)
		}
		of := make(object)
		if err := yaml.Unmarshal(text, &of); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(of, o); d != "" {
			t.Errorf("%s (-chart +kustomization)\n%s", key, d)
		}
	}
}
