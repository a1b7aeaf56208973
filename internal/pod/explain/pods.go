package explain

import (
	"fmt"
	"net/netip"
	"strings"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/lint"
)

// podAddress reports whether the name is below pod and a cluster domain, where the name of
// a Pod is its address with dashes (Kubernetes, "DNS for Services and Pods", "Pods").
func (d *diagnoser) podAddress() bool {
	for _, name := range d.names {
		name = strings.ToLower(strings.TrimSuffix(name, "."))
		for _, domain := range d.Linter.Domains {
			if rest, ok := strings.CutSuffix(name, ".pod."+domain); ok && strings.Contains(rest, ".") {
				dot := strings.LastIndexByte(rest, '.')
				d.podUnder(rest[:dot], rest[dot+1:], domain)
				return true
			}
		}
	}
	return false
}

// podUnder diagnoses the name of a Pod: its labels before the namespace.
func (d *diagnoser) podUnder(labels, namespace, domain string) {
	nameOf := func(addr netip.Addr, namespace string) string {
		dashed := strings.NewReplacer(".", "-", ":", "-").Replace(addr.String())
		return fmt.Sprintf("%s.%s.pod.%s", dashed, namespace, domain)
	}
	addr, err := netip.ParseAddr(strings.ReplaceAll(labels, "-", "."))
	if err != nil {
		addr, err = netip.ParseAddr(strings.ReplaceAll(labels, "-", ":"))
	}
	switch {
	case d.NoPodNames:
		d.add("pod-names-disabled", "set dns.pods: verified, or give the Pods names with a headless Service",
			"the server has no names of Pods by address: its setting dns.pods is disabled")
	case d.Linter.View.Namespace(namespace) == nil && !isSystem(namespace):
		d.add("no-namespace", "check that the label before pod is a namespace", "namespace %s does not exist", namespace)
	case err == nil && strings.Contains(labels, "."):
		d.add("pod-address", fmt.Sprintf("ask for %q", nameOf(addr, namespace)),
			"the name of a Pod has its address with dashes, as in %s", nameOf(addr, namespace))
	case err == nil:
		d.podWith(addr, namespace, nameOf)
	default:
		d.podCalled(cluster.Key{Namespace: namespace, Name: labels}, nameOf)
	}
}

// podWith diagnoses the name of a Pod with an address, in a namespace.
func (d *diagnoser) podWith(addr netip.Addr, namespace string, nameOf func(netip.Addr, string) string) {
	if d.notLoaded(cluster.KindPod) {
		return
	}
	for p := range d.Linter.View.Pods() {
		for _, ip := range p.IPs {
			switch {
			case ip != addr:
				continue
			case p.Finished:
				d.add("pod-finished", "use the address of a Pod that runs", "pod %s, which had the address %s, has finished",
					p.Key, addr)
			case p.Namespace != namespace:
				d.add("pod-address", fmt.Sprintf("ask for %q", nameOf(addr, p.Namespace)),
					"no Pod of namespace %s has the address %s; pod %s has it", namespace, addr, p.Key)
			default:
				d.add("no-record", "look up the type of its address", "pod %s has no %s record", p.Key,
					strings.Join(d.e.Types, " and no "))
			}
			return
		}
	}
	d.add("no-pod", "use the address of a Pod that exists", "no Pod has the address %s", addr)
}

// podCalled diagnoses the name of a Pod with its name instead of its address.
func (d *diagnoser) podCalled(key cluster.Key, nameOf func(netip.Addr, string) string) {
	cure := "use its address with dashes, as in " + nameOf(netip.AddrFrom4([4]byte{10, 244, 0, 7}), key.Namespace)
	if p := d.Linter.View.Pod(key); p != nil && len(p.IPs) > 0 && !p.Finished {
		cure = fmt.Sprintf("ask for %q", nameOf(p.IPs[0], key.Namespace))
	}
	d.add("pod-address", cure, "below pod, the name of a Pod is its address with dashes, not its name")
}

// podName reports whether the name is that of a Pod, which has no name of its own.
func (d *diagnoser) podName(m meaning) bool {
	if m.host != "" || m.port != "" {
		return false
	}
	under := meaning{service: cluster.Key{Namespace: m.service.Namespace}, host: m.service.Name}
	if w := d.statefulSetOf(under); w != nil {
		under.service.Name = w.Service
		if s := dnsconfig.SubjectOfWorkload(w); d.addFindings(d.Linter.CheckSubject(&s), lint.StatefulSetNoService,
			lint.StatefulSetServiceMissing) {
			return true
		}
		d.suggest("pod-name", under, "", "%s is a Pod of statefulset %s, whose Pods have names under Service %s only",
			under.host, w.Key, w.Service)
		return true
	}
	p := d.Linter.View.Pod(m.service)
	if p == nil {
		return false
	}
	const noName = "%s is a Pod, and Pods have no names of their own"
	if s := d.selecting(p.Namespace, p.Labels); s != nil && !p.Finished {
		d.suggest("pod-name", meaning{service: s.Key}, "", noName+"; Service %s selects it", p.Name, s.Name)
		return true
	}
	d.add("pod-name", "create a Service that selects it", noName, p.Name)
	return true
}

// workload reports whether a workload has the name, and its Pods a Service of another
// name.
func (d *diagnoser) workload(m meaning) bool {
	w := d.workloadOf(m)
	if w == nil {
		return false
	}
	s := d.selecting(w.Namespace, w.Labels)
	if s == nil {
		return false
	}
	of := dnsconfig.SubjectOfWorkload(w)
	d.suggest("workload-name", meaning{service: s.Key, port: m.port, protocol: m.protocol}, "",
		"Service %s does not exist; the Service of %s is %s", m.service, &of, s.Name)
	return true
}

// unnamedWorkload reports whether a workload has the name, and no Service selects its Pods.
func (d *diagnoser) unnamedWorkload(m meaning) bool {
	w := d.workloadOf(m)
	if w == nil || w.Kind != cluster.KindDeployment {
		return false
	}
	d.add(
		"workload-name",
		fmt.Sprintf("create a Service that selects its Pods: kubectl expose deployment %s --namespace %s",
			w.Name, w.Namespace),
		"Service %s does not exist, so deployment %s has no name",
		m.service,
		w.Key,
	)
	return true
}

// workloadOf returns the workload with the name of a Service, or nil.
func (d *diagnoser) workloadOf(m meaning) *cluster.Workload {
	if m.host != "" {
		return nil
	}
	for _, k := range []cluster.Kind{cluster.KindDeployment, cluster.KindStatefulSet, cluster.KindDaemonSet} {
		if w := d.Linter.View.Workload(k, m.service); w != nil {
			return w
		}
	}
	return nil
}

// selecting returns the first Service with a name that selects Pods with these labels, or
// nil.
func (d *diagnoser) selecting(namespace string, labels map[string]string) *cluster.Service {
	for _, name := range d.servicesIn(namespace) {
		s := d.Linter.View.Service(cluster.Key{Namespace: namespace, Name: name})
		if (s.Headless || len(s.ClusterIPs) > 0) && s.SelectsLabels(namespace, labels) {
			return s
		}
	}
	return nil
}
