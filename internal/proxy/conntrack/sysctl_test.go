package conntrack

import (
	"io/fs"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The cases are those of kube-proxy (pkg/proxy/conntrack/sysctls_test.go), and more.
func TestSysctls(t *testing.T) {
	t.Parallel()
	const hash = "/sys/module/nf_conntrack/parameters/hashsize="
	tests := map[string]struct {
		settings Settings
		cpus     int
		want     []string
	}{
		"nothing is set without settings": {Settings{}, 4, nil},
		"the defaults on a small machine": {DefaultSettings(), 2, []string{
			"net.netfilter.nf_conntrack_max=131072", hash + "32768",
			"net.netfilter.nf_conntrack_tcp_timeout_established=86400", "net.netfilter.nf_conntrack_tcp_timeout_close_wait=3600",
		}},
		"entries scale with CPUs":               {Settings{MaxPerCore: 67890, Min: 1}, 4, []string{"net.netfilter.nf_conntrack_max=271560", hash + "67890"}},
		"there is a least number of entries":    {Settings{MaxPerCore: 1, Min: 123456}, 4, []string{"net.netfilter.nf_conntrack_max=123456", hash + "30864"}},
		"no number per CPU leaves the limit":    {Settings{MaxPerCore: 0, Min: 123456}, 4, nil},
		"there is a largest number of entries":  {Settings{MaxPerCore: 32768}, 512, []string{"net.netfilter.nf_conntrack_max=1048576", hash + "262144"}},
		"the least number may exceed the limit": {Settings{MaxPerCore: 1, Min: 2 << 20}, 4, []string{"net.netfilter.nf_conntrack_max=2097152", hash + "524288"}},
		"TCP connections in use":                {Settings{TCPEstablished: 5 * time.Second}, 4, []string{"net.netfilter.nf_conntrack_tcp_timeout_established=5"}},
		"TCP connections half closed":           {Settings{TCPCloseWait: 5 * time.Second}, 4, []string{"net.netfilter.nf_conntrack_tcp_timeout_close_wait=5"}},
		"TCP packets outside of the window":     {Settings{TCPBeLiberal: true}, 4, []string{"net.netfilter.nf_conntrack_tcp_be_liberal=1"}},
		"UDP flows without answer":              {Settings{UDP: 5 * time.Second}, 4, []string{"net.netfilter.nf_conntrack_udp_timeout=5"}},
		"UDP flows with answers":                {Settings{UDPStream: 5 * time.Second}, 4, []string{"net.netfilter.nf_conntrack_udp_timeout_stream=5"}},
		"parts of seconds are rounded up":       {Settings{UDP: 500 * time.Millisecond}, 4, []string{"net.netfilter.nf_conntrack_udp_timeout=1"}},
	}
	for claim, tt := range tests {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, s := range tt.settings.Sysctls(tt.cpus) {
				got = append(got, s.String())
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("(%+v).Sysctls(%d) = %q, want %q", tt.settings, tt.cpus, got, tt.want)
			}
		})
	}
}

func TestApply(t *testing.T) {
	t.Parallel()
	const name, other = procSys + "net/netfilter/nf_conntrack_max", procSys + "net/netfilter/nf_conntrack_udp_timeout"
	both := []Sysctl{{File: name, Value: 100}, {File: other, Value: 30}}
	tests := map[string]struct {
		has     map[string]string
		refuses error // of each write
		sysctls []Sysctl
		writes  []string
		warns   int
		want    string // the error
	}{
		"what differs is written":                        {has: map[string]string{name: "99\n", other: "31\n"}, sysctls: both, writes: []string{name + "=100", other + "=30"}},
		"what is so already is not written":              {has: map[string]string{name: "100\n", other: "30\n"}, sysctls: both},
		"a larger value is lowered, as kube-proxy does":  {has: map[string]string{name: "200\n", other: "30\n"}, sysctls: both, writes: []string{name + "=100"}},
		"a larger value stays where less is enough":      {has: map[string]string{name: "200\n"}, sysctls: []Sysctl{{File: name, Value: 100, AtLeast: true}}},
		"a smaller value is raised":                      {has: map[string]string{name: "50\n"}, sysctls: []Sysctl{{File: name, Value: 100, AtLeast: true}}, writes: []string{name + "=100"}},
		"read-only files give one warning":               {has: map[string]string{name: "1", other: "1"}, refuses: syscall.EROFS, sysctls: both, warns: 1},
		"a container without privileges gives a warning": {has: map[string]string{name: "1", other: "1"}, refuses: syscall.EACCES, sysctls: both, warns: 1},
		"a kernel without the setting gives a warning":   {refuses: syscall.ENOENT, sysctls: both, warns: 1},
		"read-only files that are right give none":       {has: map[string]string{name: "100", other: "30"}, refuses: syscall.EROFS, sysctls: both},
		"a value that the kernel refuses is an error": {
			has: map[string]string{name: "1", other: "30"}, refuses: syscall.EINVAL, sysctls: both,
			want: "set net.netfilter.nf_conntrack_max=100: invalid argument",
		},
	}
	for claim, tt := range tests {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			var writes []string
			f := files{
				read: func(name string) ([]byte, error) {
					if value, ok := tt.has[name]; ok {
						return []byte(value), nil
					}
					return nil, fs.ErrNotExist
				},
				write: func(name string, data []byte) error {
					if tt.refuses == nil {
						writes = append(writes, name+"="+string(data))
					}
					return tt.refuses
				},
			}
			var log strings.Builder
			err := f.apply(tt.sysctls, slog.New(slog.NewTextHandler(&log, nil)))
			if got := errorText(err); got != tt.want {
				t.Errorf("apply(%v) = %q, want %q", tt.sysctls, got, tt.want)
			}
			if !slices.Equal(writes, tt.writes) {
				t.Errorf("apply(%v) writes %q, want %q", tt.sysctls, writes, tt.writes)
			}
			if got := strings.Count(log.String(), "level=WARN"); got != tt.warns {
				t.Errorf("%d warnings, want %d:\n%s", got, tt.warns, &log)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestCountCPUs(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]int{"0": 1, "0-3": 4, "0-3,8": 5, "1,3-4": 3, "": 0, "a": 0, "0-": 0, "3-0": 0} {
		got, err := countCPUs(list)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("countCPUs(%q) = %d, %v, want %d", list, got, err, want)
		}
	}
	if got := CPUs(); got < runtime.NumCPU() {
		t.Errorf("CPUs() = %d, fewer than the %d of this process", got, runtime.NumCPU())
	}
}
