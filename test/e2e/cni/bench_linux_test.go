package cni

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// BenchmarkADD measures what the plugin adds to the start of a Pod, from the start of its process to its end,
// with an agent that admits at once. The agent's own time comes on top. It also reports the processor time,
// which a busy machine distorts less, and for comparison that of the program's other commands (version), and
// what a process costs at all (true).
func BenchmarkADD(b *testing.B) {
	r := newRuntime(b, "ptp", "1.0.0")
	r.serve(b, new(gate), nil)
	run := func(i int, program string, args ...string) (took, cpu time.Duration) {
		cmd := exec.CommandContext(b.Context(), program, args...)
		var out bytes.Buffer
		cmd.Stdout = &out
		if len(args) == 0 {
			cmd.Env = append(os.Environ(), "CNI_COMMAND=ADD", fmt.Sprint("CNI_CONTAINERID=sandbox-", i), "CNI_IFNAME=eth0",
				"CNI_NETNS=/proc/1/ns/net", "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web")
			cmd.Stdin = bytes.NewReader(fmt.Appendf(nil, `{"cniVersion":"1.0.0","name":"pods","type":"portolan","socket":%q,
				"prevResult":{"cniVersion":"1.0.0","ips":[{"address":"10.244.%d.%d/24"}]}}`, r.socket, i/250, i%250))
		}
		begin := time.Now()
		if err := cmd.Run(); err != nil {
			b.Fatalf("%v: %s", err, &out)
		}
		return time.Since(begin), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	var times, cpus, others, bases []time.Duration
	for i := 0; b.Loop(); i++ {
		took, cpu := run(i%60_000, r.plugin)
		times, cpus = append(times, took), append(cpus, cpu)
		if i%10 == 0 {
			b.StopTimer()
			_, cpu := run(0, r.plugin, "version")
			others = append(others, cpu)
			took, _ := run(0, "true")
			bases = append(bases, took)
			b.StartTimer()
		}
	}
	report := func(name string, times []time.Duration, part float64) {
		slices.Sort(times)
		b.ReportMetric(float64(times[int(part*float64(len(times)-1))].Microseconds())/1000, name)
	}
	report("p50-ms", times, 0.5)
	report("p99-ms", times, 0.99)
	report("true-p50-ms", bases, 0.5)
	report("true-p99-ms", bases, 0.99)
	report("cpu-p50-ms", cpus, 0.5)
	report("version-cpu-p50-ms", others, 0.5)
}
