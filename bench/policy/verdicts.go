package policy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/kube-network-policies/pkg/api"
	"sigs.k8s.io/kube-network-policies/pkg/network"
	"sigs.k8s.io/kube-network-policies/pkg/networkpolicy"

	"portolan.dev/portolan/bench/fakeapi"
	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/policy/plan"
	"portolan.dev/portolan/internal/policy/ruleset"
	"portolan.dev/portolan/internal/policy/semantics"
)

// questions is how many first packets are judged.
const questions = 5000

// question is a first packet from one Pod to another, which is on the node.
type question struct {
	from, to int
	port     uint16
}

func randomQuestion(r *rand.Rand) question {
	q := question{to: r.IntN(int(large)), port: uint16(firstPort + r.IntN(peers))}
	for q.from = r.IntN(pods); q.from == q.to; { // a Pod reaches itself, which the others do not say
		q.from = r.IntN(pods)
	}
	return q
}

// judge is an evaluator of policies: it returns whether a packet passes.
type judge struct {
	name    string
	verdict func(question) (bool, error)
}

// measureVerdicts has all evaluators judge the same packets, which they must agree on.
func (b *bench) measureVerdicts(context.Context) (figures []figure, err error) {
	store, err := model(large.eachPod, eachPolicy)
	if err != nil {
		return nil, err
	}
	theirs, err := newEngine()
	if err != nil {
		return nil, err
	}
	all := make([]question, questions)
	r := random(ofQuestions, 0)
	for i := range all {
		all[i] = randomQuestion(r)
	}
	var before []bool
	for _, j := range []judge{
		{"kube-network-policies' evaluator", theirs.judge},
		{"policy/semantics", newEvaluator(store).judge},
		{"the compiled rules, in the agent", (&compiled{compile(store)}).judge},
	} {
		verdicts := make([]bool, len(all))
		s, err := measured(func() (err error) {
			for i, q := range all {
				if verdicts[i], err = j.verdict(q); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", j.name, err)
		}
		if before != nil {
			if err := agree(all, before, verdicts, j.name); err != nil {
				return nil, err
			}
		}
		before = verdicts
		each := float64(s.processor) / float64(time.Microsecond) / float64(len(all))
		figures = append(figures, figure{what: "processor time of a verdict of " + j.name + ", µs", number: each})
	}
	if b.added > 0 {
		what := "what a new flow costs in the kernel with 10 policies, over none, µs"
		figures = append(figures, figure{what: what, number: b.added})
	}
	return figures, nil
}

// agree returns an error if verdicts differ, or are all the same.
func agree(all []question, before, now []bool, name string) error {
	allowed := 0
	for i, q := range all {
		if before[i] != now[i] {
			return fmt.Errorf("%s: %+v is allowed: %t, and by the one before: %t", name, q, now[i], before[i])
		}
		if now[i] {
			allowed++
		}
	}
	if allowed == 0 || allowed == len(all) {
		return fmt.Errorf("%s: %d of %d packets are allowed", name, allowed, len(all))
	}
	return nil
}

// engine is that of kube-network-policies, as its program has it.
type engine struct {
	whole  *networkpolicy.PolicyEngine
	byAddr map[string]*api.PodInfo
}

func newEngine() (*engine, error) {
	core := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	namespaces, pods := core.Core().V1().Namespaces(), core.Core().V1().Pods()
	policies := core.Networking().V1().NetworkPolicies()
	index := map[string]cache.Indexer{
		"namespaces": namespaces.Informer().GetIndexer(), "pods": pods.Informer().GetIndexer(),
		"networkpolicies": policies.Informer().GetIndexer(),
	}
	e := &engine{byAddr: make(map[string]*api.PodInfo)}
	e.whole = networkpolicy.NewPolicyEngine(e, []api.PolicyEvaluator{
		networkpolicy.NewStandardNetworkPolicy(nodeName, namespaces, pods, policies),
	})
	teams := make(map[string]map[string]string)
	add := func(resource string, o fakeapi.Object) error {
		switch o := o.(type) {
		case *corev1.Namespace:
			teams[o.Name] = o.Labels
		case *corev1.Pod:
			e.byAddr[o.Status.PodIP] = api.NewPodInfo(o, teams[o.Namespace], nil, "")
		}
		if into := index[resource]; into != nil {
			return into.Add(o)
		}
		return nil
	}
	return e, errors.Join(large.eachPod(add), eachPolicy(add))
}

// GetPodInfoByIP implements api.PodInfoProvider.
func (e *engine) GetPodInfoByIP(ip string) (*api.PodInfo, bool) {
	info, ok := e.byAddr[ip]
	return info, ok
}

func (e *engine) judge(q question) (bool, error) {
	const sourcePort = 40_000
	return e.whole.EvaluatePacket(context.Background(), &network.Packet{
		SrcIP: large.podAddr(q.from).AsSlice(), DstIP: large.podAddr(q.to).AsSlice(), Proto: corev1.ProtocolTCP,
		SrcPort: sourcePort, DstPort: int(q.port),
	})
}

// evaluator is policy/semantics.
type evaluator struct {
	set    *semantics.Set
	byAddr map[netip.Addr]*semantics.End
}

func newEvaluator(store *cluster.Store) *evaluator {
	e := &evaluator{byAddr: make(map[netip.Addr]*semantics.End)}
	store.View(func(v *cluster.View) {
		e.set = semantics.NewSet(v)
		for p := range v.Pods() {
			e.byAddr[p.IPs[0]] = semantics.EndOf(p)
		}
	})
	return e
}

func (e *evaluator) judge(q question) (bool, error) {
	from, to := e.byAddr[large.podAddr(q.from)], e.byAddr[large.podAddr(q.to)]
	port := cluster.Port{Protocol: cluster.TCP, Number: q.port}
	return e.set.Egress(from, to, port).Allowed && e.set.Ingress(to, from, port).Allowed, nil
}

// compiled is what the kernel gets, judged by the agent.
type compiled struct{ *plan.Compiler }

func (c *compiled) judge(q question) (bool, error) {
	return ruleset.Judge(c, ruleset.Packet{
		Source: large.podAddr(q.from), Destination: large.podAddr(q.to), Protocol: ruleset.TCP, DestinationPort: q.port,
	}, nil).Allowed, nil
}
