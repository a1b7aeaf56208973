package gatewaystatus

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/object"
)

// fields returns the fields of a status that are ours, of an object that was read, also as text, and is to have the
// status of the model's. Lists are never left out: the patch would not empty them.
func (w *Writer) fields(was object.API, text []byte, is cluster.Object) (map[string]any, error) {
	switch o := is.(type) {
	case *cluster.GatewayClass:
		features := []gatewayv1.SupportedFeature{}
		for _, name := range o.Features {
			features = append(features, gatewayv1.SupportedFeature{Name: gatewayv1.FeatureName(name)})
		}
		return map[string]any{"conditions": conditions(o.Conditions), "supportedFeatures": features}, nil
	case *cluster.ListenerSet:
		return map[string]any{"conditions": conditions(o.Conditions), "listeners": listeners(o.ListenerStatuses)}, nil
	case *cluster.Route:
		parents, err := w.parents(was, text, o.Spec)
		return map[string]any{"parents": parents}, err
	case *cluster.BackendTLSPolicy:
		ancestors, err := w.ancestors(text, o.Ancestors)
		return map[string]any{"ancestors": ancestors}, err
	case *cluster.BackendTrafficPolicy:
		ancestors, err := w.ancestors(text, o.Ancestors)
		return map[string]any{"ancestors": ancestors}, err
	case *cluster.RoutePolicy:
		ancestors, err := w.ancestors(text, o.Ancestors)
		return map[string]any{"ancestors": ancestors}, err
	case *cluster.Frontend:
		if o.Ingress != nil {
			return map[string]any{"loadBalancer": map[string]any{"ingress": balancers(o.Ingress.LoadBalancer)}}, nil
		}
		s := &o.Gateway.Status
		return map[string]any{
			"addresses": addresses(s.Addresses), "conditions": conditions(s.Conditions), "listeners": listeners(s.Listeners),
			"attachedListenerSets": s.AttachedListenerSets,
		}, nil
	}
	return nil, fmt.Errorf("%T has no status", is)
}

func conditions(all []cluster.StatusCondition) []metav1.Condition {
	made := []metav1.Condition{}
	for _, c := range all {
		made = append(made, metav1.Condition{
			Type: c.Type, Status: metav1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message,
			ObservedGeneration: c.Generation, LastTransitionTime: metav1.NewTime(time.Unix(c.Changed, 0).UTC()),
		})
	}
	return made
}

func listeners(all []cluster.ListenerStatus) []gatewayv1.ListenerStatus {
	made := []gatewayv1.ListenerStatus{}
	for i := range all {
		l := gatewayv1.ListenerStatus{
			Name: gatewayv1.SectionName(all[i].Name), AttachedRoutes: all[i].AttachedRoutes,
			Conditions: conditions(all[i].Conditions), SupportedKinds: []gatewayv1.RouteGroupKind{},
		}
		for _, k := range all[i].SupportedKinds {
			l.SupportedKinds = append(l.SupportedKinds, gatewayv1.RouteGroupKind{
				Group: new(gatewayv1.Group(k.Group)), Kind: gatewayv1.Kind(k.Kind),
			})
		}
		made = append(made, l)
	}
	return made
}

func addresses(all []cluster.GatewayAddress) []gatewayv1.GatewayStatusAddress {
	made := []gatewayv1.GatewayStatusAddress{}
	for _, a := range all {
		made = append(made, gatewayv1.GatewayStatusAddress{Type: new(gatewayv1.AddressType(a.Type)), Value: a.Value})
	}
	return made
}

func balancers(all []cluster.LoadBalancerIngress) []networkingv1.IngressLoadBalancerIngress {
	made := []networkingv1.IngressLoadBalancerIngress{}
	for _, a := range all {
		made = append(made, networkingv1.IngressLoadBalancerIngress{IP: a.IP, Hostname: a.Hostname})
	}
	return made
}

// parents returns the parents of a route's status: those of other controllers as they are in the text, then ours, with
// the parentRefs as the spec has them.
func (w *Writer) parents(was object.API, text []byte, is *cluster.RouteSpec) ([]json.RawMessage, error) {
	refs, statuses, err := parentsOf(was)
	if err != nil {
		return nil, err
	}
	var raw struct {
		Status struct {
			Parents []json.RawMessage `json:"parents"`
		} `json:"status"`
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, err
	}
	made := []json.RawMessage{}
	for i := range statuses {
		if string(statuses[i].ControllerName) != w.controller {
			made = append(made, raw.Status.Parents[i])
		}
	}
	for i := range is.Statuses {
		s := &is.Statuses[i]
		if s.Controller != w.controller {
			continue
		}
		// The model has the parents of the spec in the same order.
		n := slices.Index(is.Parents, s.Parent)
		if n < 0 {
			return nil, fmt.Errorf("the spec has no parent %+v", s.Parent)
		}
		entry, err := json.Marshal(gatewayv1.RouteParentStatus{
			ParentRef: refs[n], ControllerName: gatewayv1.GatewayController(w.controller),
			Conditions: conditions(s.Conditions),
		})
		if err != nil {
			return nil, err
		}
		made = append(made, entry)
	}
	return made, nil
}

// parentsOf returns the parents of a route, and those in its status.
func parentsOf(route object.API) (refs []gatewayv1.ParentReference, statuses []gatewayv1.RouteParentStatus, err error) {
	switch r := route.(type) {
	case *gatewayv1.HTTPRoute:
		return r.Spec.ParentRefs, r.Status.Parents, nil
	case *gatewayv1.GRPCRoute:
		return r.Spec.ParentRefs, r.Status.Parents, nil
	case *gatewayv1.TLSRoute:
		return r.Spec.ParentRefs, r.Status.Parents, nil
	case *gatewayv1.TCPRoute:
		return r.Spec.ParentRefs, r.Status.Parents, nil
	case *gatewayv1.UDPRoute:
		return r.Spec.ParentRefs, r.Status.Parents, nil
	}
	return nil, nil, fmt.Errorf("%T is not a route", route)
}

// ancestors returns those of a policy's status: of other controllers as they are in the text, then ours.
func (w *Writer) ancestors(text []byte, is []cluster.ParentStatus) ([]json.RawMessage, error) {
	var raw struct {
		Status struct {
			Ancestors []json.RawMessage `json:"ancestors"`
		} `json:"status"`
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, err
	}
	made := []json.RawMessage{}
	for _, entry := range raw.Status.Ancestors {
		var of gatewayv1.PolicyAncestorStatus
		if err := json.Unmarshal(entry, &of); err != nil {
			return nil, err
		}
		if string(of.ControllerName) != w.controller {
			made = append(made, entry)
		}
	}
	for i := range is {
		s := &is[i]
		if s.Controller != w.controller {
			continue
		}
		entry, err := json.Marshal(gatewayv1.PolicyAncestorStatus{
			AncestorRef: gatewayv1.ParentReference{
				Group: new(gatewayv1.Group(s.Parent.Group)), Kind: new(gatewayv1.Kind(s.Parent.Kind)),
				Namespace: new(gatewayv1.Namespace(s.Parent.Namespace)), Name: gatewayv1.ObjectName(s.Parent.Name),
			},
			ControllerName: gatewayv1.GatewayController(w.controller), Conditions: conditions(s.Conditions),
		})
		if err != nil {
			return nil, err
		}
		made = append(made, entry)
	}
	return made, nil
}
