package cluster

import "testing"

func TestKeyString(t *testing.T) {
	for key, want := range map[Key]string{
		{Namespace: "shop", Name: "web"}: "shop/web",
		{Name: "node-1"}:                 "node-1",
		{}:                               "",
	} {
		if got := key.String(); got != want {
			t.Errorf("%#v.String() = %q, want %q", key, got, want)
		}
	}
}

func TestKeyCompare(t *testing.T) {
	tests := map[string]struct {
		a, b Key
		want int
	}{
		"equal":                        {Key{"a", "b"}, Key{"a", "b"}, 0},
		"by name in one namespace":     {Key{"a", "a"}, Key{"a", "b"}, -1},
		"by namespace before the name": {Key{"b", "a"}, Key{"a", "b"}, 1},
		"without namespace first":      {Key{"", "z"}, Key{"a", "a"}, -1},
	}
	for claim, test := range tests {
		if got := test.a.Compare(test.b); got != test.want {
			t.Errorf("%s: %v.Compare(%v) = %d, want %d", claim, test.a, test.b, got, test.want)
		}
		if got := test.b.Compare(test.a); got != -test.want {
			t.Errorf("%s: %v.Compare(%v) = %d, want %d", claim, test.b, test.a, got, -test.want)
		}
	}
}

func TestKindString(t *testing.T) {
	want := []string{"Namespace", "Service", "EndpointSlice", "Pod", "Node"}
	if len(Kinds()) != len(want) {
		t.Fatalf("Kinds() = %v, want %v", Kinds(), want)
	}
	for i, k := range Kinds() {
		if k.String() != want[i] {
			t.Errorf("Kinds()[%d].String() = %q, want %q", i, k, want[i])
		}
	}
	if got := kinds.String(); got != "unknown" {
		t.Errorf("Kind(%d).String() = %q, want unknown", kinds, got)
	}
}

func TestServiceSelects(t *testing.T) {
	pod := &Pod{Key: Key{"shop", "web-1"}, Labels: map[string]string{"app": "web", "tier": "", "run": "x"}}
	tests := map[string]struct {
		namespace string
		selector  map[string]string
		want      bool
	}{
		"one term that fits":                         {"shop", map[string]string{"app": "web"}, true},
		"all terms fit":                              {"shop", map[string]string{"app": "web", "run": "x"}, true},
		"one of two terms does not fit":              {"shop", map[string]string{"app": "web", "run": "y"}, false},
		"a label that the Pod does not have":         {"shop", map[string]string{"zone": "a"}, false},
		"an empty value fits an empty label":         {"shop", map[string]string{"tier": ""}, true},
		"an empty value does not fit an absent one":  {"shop", map[string]string{"zone": ""}, false},
		"no selector selects nothing":                {"shop", nil, false},
		"a Pod of another namespace is not selected": {"data", map[string]string{"app": "web"}, false},
	}
	for claim, test := range tests {
		s := &Service{Key: Key{test.namespace, "web"}, Selector: test.selector}
		if got := s.Selects(pod); got != test.want {
			t.Errorf("%s: Service %v with selector %v: Selects(%v) = %t, want %t", claim, s.Key, s.Selector, pod.Key, got, test.want)
		}
	}
}
