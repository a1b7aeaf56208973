package policy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"portolan.dev/portolan/bench/rig"
	"portolan.dev/portolan/bench/synthetic"
)

// measureStarts starts Pods on the node, one after the other, and measures how long the CNI plugin's ADD
// takes, from the start of its process to its end.
func (b *bench) measureStarts(ctx context.Context) (figures []figure, err error) {
	const p50, p99 = 5, 20 // ms
	a, err := b.newAgent(usual)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, a.close()) }()
	time.Sleep(settleTime)
	defer rig.KeepGarbage()()
	var plugin, empty []time.Duration
	for i := range b.starts {
		took, err := a.startPod(i)
		if err != nil {
			return nil, fmt.Errorf("start %d: %w\n%s", i, err, a.process.Log())
		}
		plugin = append(plugin, took)
		began := time.Now()
		if err := a.call("STATUS", nil); err != nil {
			return nil, err
		}
		empty = append(empty, time.Since(began))
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	call := figure{
		what: "a call of the plugin that changes nothing, p50, ms", number: milliseconds(rig.Quantile(empty, .5)),
	}
	return append(quantiles("ADD", plugin, p50, p99), call), nil
}

// startPod starts a Pod of an app of the cluster, and ends it.
func (a *agent) startPod(i int) (time.Duration, error) {
	const before, longest = 20 * time.Millisecond, 40 * time.Millisecond // as a runtime takes for the Pod's network
	p := a.node.newPod(i % int(a.node))
	addr := synthetic.Nth(localIPs, int(a.node)+i)
	p.Name, p.UID = fmt.Sprintf("starting-%d", i), types.UID(fmt.Sprintf("starting-%d", i))
	p.Status = corev1.PodStatus{Phase: corev1.PodPending}
	if err := a.api.Create("pods", p); err != nil {
		return 0, err
	}
	time.Sleep(before + rand.N(longest-before))
	attached := running(p.DeepCopy(), addr)
	began := time.Now()
	if err := a.call("ADD", attached); err != nil {
		return 0, err
	}
	took := time.Since(began)
	return took, errors.Join(a.api.Change("pods", attached), a.call("DEL", attached), a.api.Delete("pods", attached))
}
