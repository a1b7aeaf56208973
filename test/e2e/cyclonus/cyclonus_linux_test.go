package cyclonus

import (
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/mattfenwick/cyclonus/pkg/connectivity/probe"
	"github.com/mattfenwick/cyclonus/pkg/generator"
	"github.com/mattfenwick/cyclonus/pkg/matcher"
	corev1 "k8s.io/api/core/v1"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/object"
	"portolan.dev/portolan/internal/policy/semantics"
)

// sample is the default of the environment variable EVERY: each 8th test case runs.
const sample = 8

// tally counts what was probed.
type tally struct{ cases, steps, probes, allowed, itself int }

// TestCases runs the test cases that are generated with a Pod's IPv4 address, and those with its IPv6 address
// that differ, which have a block around it. Each is probed with both families.
func TestCases(t *testing.T) {
	every := sample
	if text := os.Getenv("EVERY"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("EVERY is %q, want a number from 1", text)
		}
		every = n
	}
	w := newWorld(t)
	if w == nil {
		return
	}
	begin := time.Now()
	cases := testCases()
	var sum tally
	for i := 0; i < len(cases); i += every {
		c := cases[i]
		sum.cases++
		t.Run(fmt.Sprintf("%d %s", i, c.Description), func(t *testing.T) {
			for _, step := range c.Steps {
				w.perform(t, step.Actions)
				w.settle(t)
				w.judge(t, &sum)
			}
			w.reset(t)
		})
		if t.Failed() {
			break // the next one might not find the state in which it begins
		}
	}
	t.Logf(
		"%d of %d test cases, %d steps, %d probes, %d of them passed, in %v; "+
			"%d verdicts differ from cyclonus' since Pods reach themselves",
		sum.cases, len(cases), sum.steps, sum.probes, sum.allowed, time.Since(begin), sum.itself,
	)
}

// testCases returns the test cases of both families.
func testCases() []*generator.TestCase {
	generate := func(family int) []*generator.TestCase {
		// cyclonus itself takes the address of this Pod.
		addr := addrsOf(cluster.Key{Namespace: "z", Name: "c"})[family]
		return generator.NewTestCaseGenerator(true, addr.String(), namespaces, nil, nil).GenerateTestCases()
	}
	all := generate(0)
	for i, c := range generate(1) {
		if !reflect.DeepEqual(c, all[i]) {
			c.Description += " of IPv6"
			all = append(all, c)
		}
	}
	return all
}

// judge probes all connections. Each must be as policy/semantics and cyclonus decide.
func (w *world) judge(t *testing.T, sum *tally) {
	t.Helper()
	const most = 10 // differences that are printed
	questions := w.questions(t)
	w.probe(t, questions)
	sum.steps++
	differences := 0
	for _, q := range questions {
		sum.probes++
		if q.passed {
			sum.allowed++
		}
		agreed := q.passed == q.cyclonus
		if !agreed && q.isItself() && q.passed {
			sum.itself++
			agreed = true
		}
		if agreed && q.passed == q.semantics {
			continue
		}
		if differences++; differences <= most {
			t.Errorf("%s: passed is %t (%v); policy/semantics has %t, cyclonus %t", q, q.passed, q.err, q.semantics, q.cyclonus)
		}
	}
	if differences > 0 {
		t.Errorf("%d of %d probes differ", differences, len(questions))
	}
}

// question is a connection, the verdicts on it, and what happened to it.
type question struct {
	from, to cluster.Key
	at       netip.AddrPort
	protocol cluster.Protocol

	semantics, cyclonus bool

	passed bool
	err    error // why it did not pass, if packets say so
}

func (q *question) String() string {
	return fmt.Sprintf("%s to %s at %s/%s", q.from, q.to, q.at, q.protocol)
}

// isItself reports whether a Pod connects to itself, which is allowed: "a pod cannot block access to itself"
// (Kubernetes documentation, Network Policies). The matcher of cyclonus does not know which Pod a packet is
// from.
func (q *question) isItself() bool { return q.from == q.to }

// questions returns all connections between Pods.
func (w *world) questions(t *testing.T) (all []*question) {
	t.Helper()
	jobs := new(probe.JobBuilder).GetJobsAllAvailableServers(w.resources, generator.ProbeModePodIP)
	policy := matcher.BuildNetworkPolicies(true, w.policies) // simplified, as cyclonus does for its own probes
	w.store(t).View(func(v *cluster.View) {
		set := semantics.NewSet(v)
		for _, job := range jobs.Valid {
			if job.Protocol == corev1.ProtocolSCTP {
				continue
			}
			from, to := w.pods[keyOf(job.FromKey)], w.pods[keyOf(job.ToKey)]
			for family, addr := range to.Addrs {
				q := &question{
					from: keyOf(job.FromKey), to: keyOf(job.ToKey),
					at: netip.AddrPortFrom(addr, uint16(job.ResolvedPort)), protocol: cluster.Protocol(job.Protocol),
				}
				job.FromIP, job.ToIP = from.Addrs[family].String(), addr.String()
				q.cyclonus = policy.IsTrafficAllowed(job.Traffic()).IsAllowed()
				q.semantics = allows(v, set, q)
				all = append(all, q)
			}
		}
	})
	return all
}

// allows returns the verdict of policy/semantics.
func allows(v *cluster.View, set *semantics.Set, q *question) bool {
	from, to := semantics.EndOf(v.Pod(q.from)), semantics.EndOf(v.Pod(q.to))
	to.Addrs = []netip.Addr{q.at.Addr()}
	for _, a := range from.Addrs {
		if a.Is4() == q.at.Addr().Is4() {
			from.Addrs = []netip.Addr{a}
		}
	}
	port := cluster.Port{Protocol: q.protocol, Number: q.at.Port()}
	return set.Egress(from, to, port).Allowed && set.Ingress(to, from, port).Allowed
}

// store returns the model of what the API server has.
func (w *world) store(t *testing.T) *cluster.Store {
	t.Helper()
	store := cluster.NewStore()
	store.Update(func(tx *cluster.Tx) {
		for _, o := range w.agent.API.Objects() {
			for _, kind := range object.Kinds {
				if reflect.TypeOf(kind.New()) != reflect.TypeOf(o) {
					continue
				}
				made, errs := kind.Decode(o.(object.API))
				if len(errs) > 0 {
					t.Fatalf("decoding %+v: %v", o, errs)
				}
				tx.Put(made)
			}
		}
	})
	return store
}
