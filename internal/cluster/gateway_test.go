package cluster

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestAgeCompare(t *testing.T) {
	t.Parallel()
	byAge := []Age{{Created: 5}, {Created: 7}, {}, {File: "a.yaml"}, {File: "a.yaml", Index: 1}, {File: "b.yaml"}}
	for i, a := range byAge {
		for k, b := range byAge {
			want := 0
			if i != k {
				want = (i - k) / max(i-k, k-i)
			}
			if got := a.Compare(b); got != want {
				t.Errorf("%+v.Compare(%+v) = %d, want %d", a, b, got, want)
			}
		}
	}
}

// TestDeclaredAt checks that each kind with an age has its place, that a creationTimestamp comes first, and
// that the object itself stays as it was.
func TestDeclaredAt(t *testing.T) {
	t.Parallel()
	of := map[string]func(Object) Meta{
		"ingress":      func(o Object) Meta { return o.(*Frontend).Ingress.Meta },
		"gateway":      func(o Object) Meta { return o.(*Frontend).Gateway.Meta },
		"httproute":    func(o Object) Meta { return o.(*Route).Spec.Meta },
		"ingressclass": func(o Object) Meta { return o.(*IngressClass).Meta },
		"gatewayclass": func(o Object) Meta { return o.(*GatewayClass).Meta },
		"listenerset":  func(o Object) Meta { return o.(*ListenerSet).Meta },
	}
	for _, m := range []Meta{{}, {Age: Age{Created: 7}, Generation: 2}} {
		for _, o := range []Object{
			&Frontend{Kind: KindIngress, Ingress: &IngressSpec{Meta: m}}, &Frontend{Kind: KindGateway, Gateway: &GatewaySpec{Meta: m}},
			&Route{Kind: KindHTTPRoute, Spec: &RouteSpec{Meta: m}}, &IngressClass{Meta: m}, &GatewayClass{Meta: m}, &ListenerSet{Meta: m},
		} {
			meta := of[strings.ToLower(o.Ref().Kind.String())]
			want := m
			if m.Created == 0 {
				want.File, want.Index = "a.yaml", 3
			}
			if got := meta(DeclaredAt(o, "a.yaml", 3)); got != want || meta(o) != m {
				t.Errorf("DeclaredAt(%s) = %+v, want %+v; the object has %+v, want %+v", o.Ref(), got, want, meta(o), m)
			}
		}
	}
	for _, o := range []Object{&Frontend{Kind: KindIngress}, &Route{Kind: KindHTTPRoute}, &Pod{}} {
		if got := DeclaredAt(o, "a.yaml", 3); got.Ref() != o.Ref() {
			t.Errorf("DeclaredAt(%s) = %v", o.Ref(), got)
		}
	}
}

func TestReferences(t *testing.T) {
	t.Parallel()
	secret := func(namespace, name string) ObjectRef {
		return ObjectRef{Kind: "Secret", Namespace: namespace, Name: name}
	}
	https := func(mode TLSMode, certificates ...ObjectRef) Listener {
		return Listener{TLS: &ListenerTLS{Mode: mode, Certificates: certificates}}
	}
	ca := &ClientValidation{Authorities: []ObjectRef{{Kind: "ConfigMap", Namespace: "shop", Name: "ca"}}}
	key := Key{"shop", "web"}
	for claim, tt := range map[string]struct {
		object Object
		want   string
	}{
		"an Ingress' tls": {
			&Frontend{Kind: KindIngress, Key: key, Ingress: &IngressSpec{TLS: []IngressTLS{{Secret: "a"}, {}, {Secret: "b"}}}},
			"[secret shop/a secret shop/b]",
		},
		"an Ingress' passwords": {
			&Frontend{Kind: KindIngress, Key: key, Ingress: &IngressSpec{Annotations: map[string]string{passwords: " users"}}},
			"[secret shop/users]",
		},
		"an Ingress' passwords with their namespace": {
			&Frontend{Kind: KindIngress, Key: key, Ingress: &IngressSpec{Annotations: map[string]string{passwords: "shop/users"}}},
			"[secret shop/users]",
		},
		"passwords of another namespace": {
			&Frontend{Kind: KindIngress, Key: key, Ingress: &IngressSpec{Annotations: map[string]string{passwords: "data/users"}}},
			"[]",
		},
		"an Ingress without tls":    {&Frontend{Kind: KindIngress, Key: key, Ingress: &IngressSpec{}}, "[]"},
		"where only names are read": {&Frontend{Kind: KindIngress, Key: key}, "[]"},
		"a listener's certificates": {
			&Frontend{Kind: KindGateway, Key: key, Gateway: &GatewaySpec{
				Listeners: []Listener{{}, https(TLSTerminate, secret("shop", "a"), secret("data", "b"))},
			}}, "[secret shop/a secret data/b]",
		},
		"a listener that does not terminate TLS": {
			&Frontend{Kind: KindGateway, Key: key, Gateway: &GatewaySpec{Listeners: []Listener{https(TLSPassthrough, secret("shop", "a"))}}}, "[]",
		},
		"other kinds": {
			&Frontend{Kind: KindGateway, Key: key, Gateway: &GatewaySpec{Listeners: []Listener{
				https(TLSTerminate, ObjectRef{Group: "example.com", Kind: "Secret", Namespace: "shop", Name: "a"}, ObjectRef{Kind: "Pod", Name: "a"}),
			}}}, "[]",
		},
		"certificates of both sides": {
			&Frontend{Kind: KindGateway, Key: key, Gateway: &GatewaySpec{
				ClientCertificate: &ObjectRef{Kind: "Secret", Namespace: "shop", Name: "a"}, ClientValidation: ca,
				ClientValidationOf: []PortClientValidation{{Port: 443}, {Port: 444, Validation: ca}},
			}}, "[secret shop/a configmap shop/ca configmap shop/ca]",
		},
		"a ListenerSet": {&ListenerSet{Key: key, Listeners: []Listener{https(TLSTerminate, secret("shop", "a"))}}, "[secret shop/a]"},
	} {
		if got := fmt.Sprint(References(tt.object)); got != tt.want {
			t.Errorf("%s: References(%s) = %s, want %s", claim, tt.object.Ref(), got, tt.want)
		}
		store := NewStore()
		store.Update(func(tx *Tx) { tx.Put(tt.object) })
		store.View(func(v *View) {
			for _, ref := range References(tt.object) {
				if !slices.Contains(slices.Collect(Referenced(v)), ref) {
					t.Errorf("%s: Referenced lacks %s", claim, ref)
				}
			}
		})
	}
}

// TestConfidential checks that values of Secrets are not printed.
func TestConfidential(t *testing.T) {
	t.Parallel()
	s := &Secret{Data: map[string]Confidential{"tls.key": Confidential("hidden")}}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, printed := range []string{string(text), fmt.Sprint(s), fmt.Sprintf("%+v %#v %s %q %x", s, s, s, s, s)} {
		if strings.Contains(printed, "hidden") || strings.Contains(printed, "68696464656e") || strings.Contains(printed, "aGlkZGVu") {
			t.Errorf("a Secret is printed as %s", printed)
		}
	}
}

func TestReferenceGrantAllows(t *testing.T) {
	t.Parallel()
	route := GroupKind{"gateway.networking.k8s.io", "HTTPRoute"}
	service := ObjectRef{Kind: "Service", Namespace: "data", Name: "db"}
	grant := &ReferenceGrant{
		Key: Key{"data", "routes"}, From: []GrantFrom{{route, "shop"}}, To: []GrantTo{{GroupKind: GroupKind{"", "Service"}, Name: "db"}},
	}
	all := &ReferenceGrant{Key: grant.Key, From: grant.From, To: []GrantTo{{GroupKind: GroupKind{"", "Service"}}}}
	other := service
	other.Name = "cache"
	elsewhere := service
	elsewhere.Namespace = "shop"
	for claim, tt := range map[string]struct {
		grant     *ReferenceGrant
		from      GroupKind
		namespace string
		to        ObjectRef
		want      bool
	}{
		"as it says":                  {grant, route, "shop", service, true},
		"any name":                    {all, route, "shop", other, true},
		"another name":                {grant, route, "shop", other, false},
		"from another namespace":      {grant, route, "web", service, false},
		"from another kind":           {grant, GroupKind{"gateway.networking.k8s.io", "GRPCRoute"}, "shop", service, false},
		"into another namespace":      {all, route, "shop", elsewhere, false},
		"to another kind of the name": {grant, route, "shop", ObjectRef{Kind: "Secret", Namespace: "data", Name: "db"}, false},
	} {
		if got := tt.grant.Allows(tt.from, tt.namespace, &tt.to); got != tt.want {
			t.Errorf("%s: Allows(%v, %q, %+v) = %t, want %t", claim, tt.from, tt.namespace, tt.to, got, tt.want)
		}
	}
}
