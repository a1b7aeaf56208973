package conntrack

import (
	"log/slog"
	"os"
	"strings"
	"testing"
)

// TestApplyInKernel makes the settings in a namespace, which may change timeouts but not how
// many entries the machine has.
func TestApplyInKernel(t *testing.T) {
	t.Parallel()
	if onNode(t, Config{}) == nil {
		return
	}
	const established, closeWait = sysctls + "tcp_timeout_established", sysctls + "tcp_timeout_close_wait"
	before, err := os.ReadFile(sysctls + "max")
	must(t, err)
	all := Settings{MaxPerCore: 12345, TCPEstablished: DefaultSettings().TCPEstablished, TCPCloseWait: DefaultSettings().TCPCloseWait}.Sysctls(1)
	var log strings.Builder
	must(t, Apply(all, slog.New(slog.NewTextHandler(&log, nil))))
	for file, want := range map[string]string{established: "86400\n", closeWait: "3600\n", sysctls + "max": string(before)} {
		got, err := os.ReadFile(file)
		must(t, err)
		if string(got) != want {
			t.Errorf("%s: %q, want %q", file, got, want)
		}
	}
	if got := strings.Count(log.String(), "level=WARN"); got != 1 || !strings.Contains(log.String(), "nf_conntrack_max=12345") {
		t.Errorf("%d warnings, want 1 about nf_conntrack_max:\n%s", got, &log)
	}
	if err := Require(all, slog.New(slog.DiscardHandler)); err == nil || !strings.HasPrefix(err.Error(), "set net.netfilter.nf_conntrack_max=12345: ") {
		t.Errorf("Require() = %v, want that nf_conntrack_max cannot be changed", err)
	}
	log.Reset()
	must(t, Apply(all[2:], slog.New(slog.NewTextHandler(&log, nil))))
	if log.Len() > 0 {
		t.Errorf("the second time, it changes settings:\n%s", &log)
	}
}
