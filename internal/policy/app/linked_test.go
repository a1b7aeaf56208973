package app

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"portolan.dev/portolan/internal/cni/attach"
	"portolan.dev/portolan/internal/policy/cni"
)

// TestAdmission: a network in this process has a sandbox admitted, with the device that it made, and released; while
// another process programs the table it waits.
func TestAdmission(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		t.Helper()
		w.load(webPod("u1"))
		web := attachment("web-0", "u1", "10.0.0.1")
		web.Network = "pods"
		gone, cancel := context.WithCancelCause(t.Context())
		late := errors.New("too late")
		cancel(late)
		if err := w.Admission().Admit(gone, web.Sandbox, web.Addresses, attach.Device{Name: "ptl0", Index: 7}); !errors.Is(err, late) {
			t.Errorf("Admit without the table: %v, want %v", err, late)
		}
		w.open(t)
		close(w.owned)
		if err := w.Admission().Admit(t.Context(), web.Sandbox, web.Addresses, attach.Device{Name: "ptl0", Index: 7}); err != nil {
			t.Errorf("Admit: %v", err)
		}
		for _, result := range []string{admitted, refused} { // the one that was late, and this one
			if got := countOf(t, w.metrics, result); got != 1 {
				t.Errorf("%s Pods that start: %d, want 1", result, got)
			}
		}
		if _, ok := w.table.judges("10.0.0.1"); !ok || len(w.table.devices) != 1 || len(w.table.devices[7].Addrs) != 1 {
			t.Errorf("the kernel judges the address: %t, and has the devices %+v, want 7", ok, w.table.devices)
		}
		if all := w.registry.All(); len(all) != 1 || len(all[0].Devices) != 1 || all[0].Devices[0] != "ptl0" {
			t.Errorf("recorded: %+v, want the device, by which the next process finds it", all)
		}
		if err := w.Admission().Check(t.Context(), web.Sandbox, web.Addresses); err != nil {
			t.Errorf("Check: %v", err)
		}
		if err := w.Admission().Release(t.Context(), web.ID); err != nil {
			t.Errorf("Release: %v", err)
		}
		if err := w.Admission().Check(t.Context(), web.Sandbox, []netip.Addr{}); !errors.Is(err, cni.ErrUnknown) {
			t.Errorf("Check after Release: %v, want %v", err, cni.ErrUnknown)
		}
	})
}

// countOf returns how many Pods that started had a result, by the metric.
func countOf(t *testing.T, m *policyMetrics, result string) uint64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.starts)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, metric := range families[0].GetMetric() {
		if metric.GetLabel()[0].GetValue() == result {
			return metric.GetHistogram().GetSampleCount()
		}
	}
	t.Fatalf("no metric of Pods that start has the result %s", result)
	return 0
}
