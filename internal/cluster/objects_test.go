package cluster

import (
	"reflect"
	"testing"
)

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
	want := []string{"Namespace", "Service", "EndpointSlice", "Pod", "Node", "Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob", "NetworkPolicy",
		"ServiceImport", "Ingress", "Gateway", "HTTPRoute", "ServiceCIDR", "ClusterNetworkPolicy",
		"IngressClass", "GatewayClass", "ListenerSet", "ReferenceGrant", "Secret", "ConfigMap",
		"GRPCRoute", "TLSRoute", "TCPRoute", "UDPRoute", "BackendTLSPolicy", "RoutePolicy", "XBackendTrafficPolicy"}
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

// TestEqual: a difference in any one field makes objects differ.
func TestEqual(t *testing.T) {
	differs(t, Namespace{}, func(a, b *Namespace) bool { return a.equal(b) })
	differs(t, Service{}, func(a, b *Service) bool { return a.equal(b) })
	differs(t, EndpointSlice{}, func(a, b *EndpointSlice) bool { return a.equal(b) })
	differs(t, SliceSpec{}, func(a, b *SliceSpec) bool { return a.equal(b) })
	differs(t, Pod{}, func(a, b *Pod) bool { return a.equal(b) })
	differs(t, Node{}, func(a, b *Node) bool { return a.equal(b) })
}

func differs[T any](t *testing.T, zero T, equal func(a, b *T) bool) {
	t.Helper()
	if !equal(&zero, &zero) {
		t.Errorf("%T: not equal to itself", zero)
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[T]()) {
		changed := zero
		v := reflect.ValueOf(&changed).Elem().FieldByIndex(field.Index)
		switch v.Kind() {
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Int64:
			v.SetInt(1)
		case reflect.String:
			v.SetString("x")
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
		case reflect.Array:
			v.Index(0).SetUint(1)
		case reflect.Map:
			v.Set(reflect.ValueOf(map[string]string{"a": "b"}))
		case reflect.Struct: // Key, whose fields are visible themselves
			continue
		default:
			t.Fatalf("%T: field %s of kind %s", zero, field.Name, v.Kind())
		}
		if equal(&zero, &changed) {
			t.Errorf("%T: equal with another %s", zero, field.Name)
		}
	}
}
