package app

import (
	"strings"
	"testing"

	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/pod/suite"
)

// TestSuiteIsBounded: of a suite that is for another cluster, the explanations do not fill the memory.
func TestSuiteIsBounded(t *testing.T) {
	t.Parallel()
	c := config.Default()
	c.Manifests = "testdata/situations/base.yaml"
	w := newWorld(t, c)
	test := func(text string) ([]suite.Result, error) {
		s, err := suite.Read("f", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return w.Test(t.Context(), s, NodeSettings{})
	}
	targets := strings.Repeat("nobody.test, ", mostExplained)
	results, err := test("tests: [{from: ['shop/*', 'data/*'], to: [" + targets + "], expect: resolves}]")
	if err != nil || len(results) <= mostExplained {
		t.Fatalf("%d results, %v", len(results), err)
	}
	explained := 0
	for i := range results {
		if results[i].Passed() {
			t.Fatal("a name outside the cluster resolves")
		}
		if results[i].Explanation != nil {
			explained++
		}
	}
	if explained != mostExplained {
		t.Errorf("%d of %d results have explanations, want %d", explained, len(results), mostExplained)
	}
	many := strings.Repeat("'*/*', ", suite.MostCases)
	if results, err = test("tests: [{from: [" + many + "], to: web:80, expect: connects}]"); err == nil ||
		!strings.Contains(err.Error(), "f:1: from: more than 100000 are named") || len(results) > 0 {
		t.Errorf("%d results, %v, want an error that says that too many are named", len(results), err)
	}
}
