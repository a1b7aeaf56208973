package explain

import (
	"fmt"
	"strings"

	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/stubresolver"
)

// queries adds why the lookup took more packets than necessary, and how to avoid them.
func (d *diagnoser) queries() {
	least, tries := len(d.types()), d.e.Candidates
	if len(tries) == 0 || d.e.Packets <= 2*least {
		return
	}
	wasted := 0
	for _, t := range tries[:len(tries)-1] {
		wasted += len(t.Exchanges)
	}
	last := tries[len(tries)-1].Name
	if wasted <= least {
		d.add(largeAnswer, "use a Service with a cluster IP, if clients need not choose an endpoint",
			"the response is large: %s for one name, because it did not fit the first time", packets(d.e.Packets))
		return
	}
	cure := fmt.Sprintf("ask for %q, with the trailing dot: %s", last, packets(d.e.Packets-wasted))
	const usual = 2 // the dots of most names outside the cluster
	if d.e.Ndots > usual && strings.Count(strings.TrimSuffix(d.Name, "."), ".") >= usual {
		cure += fmt.Sprintf("; or set the option ndots:%d in the Pod's dnsConfig, "+
			"so that the name is tried as given first", usual)
	}
	if n := d.withAutopath(); n > 0 && n < d.e.Packets {
		cure += fmt.Sprintf("; or, with the webhook, give the Pod the policy %s, with which the server "+
			"applies the search list (docs/webhook.md): %s", dnsconfig.ClusterFirstWithAutopath, packets(n))
	}
	d.add(manyQueries, cure, "%d of %s were for names of the search list that do not exist (ndots:%d)",
		wasted, packets(d.e.Packets), d.e.Ndots)
}

// withAutopath returns the number of packets of the lookup with
// ClusterFirstWithAutopath, or 0 if the name would not resolve, or the Pod's policy is
// another one than ClusterFirst.
func (d *diagnoser) withAutopath() int {
	if d.e.Policy != dnsconfig.ClusterFirst {
		return 0
	}
	pod := d.Subject.Settings()
	pod.Policy = dnsconfig.ClusterFirstWithAutopath
	trace := d.simulate(dnsconfig.Resolve(pod, d.Node).Config, d.Libc)
	if trace.Outcome != stubresolver.Found {
		return 0
	}
	return trace.Packets()
}

func packets(n int) string {
	if n == 1 {
		return "1 packet"
	}
	return fmt.Sprintf("%d packets", n)
}
