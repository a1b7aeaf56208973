package rig_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"portolan.dev/portolan/bench/rig"
)

func TestSpread(t *testing.T) {
	for want, numbers := range map[string][]float64{
		"2.0 (1.0 to 30.0)": {30, 1, 2},
		"0.50":              {.5},
		"1234":              {1234},
	} {
		if got := rig.Over(numbers).String(); !strings.HasPrefix(got, want) {
			t.Errorf("Over(%v) = %s, want %s", numbers, got, want)
		}
	}
}

func TestWriteBetween(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.md")
	text := "before\n<!-- a: begin -->\nold\n<!-- a: end -->\nafter\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := rig.WriteBetween(file, "a", "new\n"); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file)
	if want := strings.Replace(text, "old", "new", 1); err != nil || string(got) != want {
		t.Errorf("the file is %q, %v; want %q", got, err, want)
	}
	if err := rig.WriteBetween(file, "b", ""); err == nil {
		t.Error("no error without marks")
	}
}

func TestStartOnUsesTheseProcessorsOnly(t *testing.T) {
	out := make(chan string, 1)
	cmd := exec.Command("grep", "Cpus_allowed_list", "/proc/self/status")
	var stdout strings.Builder
	cmd.Stdout = &stdout
	go func() {
		if err := rig.StartOn(cmd, []int{0}); err != nil {
			out <- err.Error()
			return
		}
		_ = cmd.Wait() // the output shows the result
		out <- stdout.String()
	}()
	if got := strings.Fields(<-out); len(got) != 2 || got[1] != "0" {
		t.Errorf("it may use %v, want 0", got)
	}
}

func TestProcessorTime(t *testing.T) {
	before, err := rig.ProcessorTime([]int{os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	const work = 5 * time.Millisecond
	for began := time.Now(); time.Since(began) < 1000*work; {
		after, err := rig.ProcessorTime([]int{os.Getpid()})
		if err != nil {
			t.Fatal(err)
		}
		if after-before > work {
			return
		}
	}
	t.Error("time goes by and is not used")
}

// TestSlices checks that slices with stolen time, and those after them, do not count.
func TestSlices(t *testing.T) {
	stolen := time.Minute
	s := rig.NewSlices(0, 0, func() time.Duration { return stolen })
	for i, more := range []time.Duration{0, 1, 0, 0, 0} {
		stolen += more
		s.Add(time.Duration(i))
		s.End(time.Duration(i+1)*rig.SliceLength - 1)
		if s.Ended != i {
			t.Error("a slice ends too early")
		}
		s.End(time.Duration(i+1) * rig.SliceLength)
	}
	if want := []time.Duration{0, 3, 4}; !slices.Equal(s.Kept, want) || s.Ended != 5 || s.Quiet != len(want) {
		t.Errorf("%d of %d slices, with %v, are quiet; want %v", s.Quiet, s.Ended, s.Kept, want)
	}
	if want := []time.Duration{0, 1, 2, 3, 4}; !slices.Equal(s.All, want) {
		t.Errorf("all are %v, want %v", s.All, want)
	}
}

func TestQuantile(t *testing.T) {
	var times []time.Duration
	for i := range time.Duration(100) {
		times = append(times, i)
	}
	if got := rig.Quantile(nil, .5); got != 0 {
		t.Errorf("quantile of nothing is %d", got)
	}
	for q, want := range map[float64]time.Duration{0: 0, .5: 50, .99: 99, 1: 99} {
		if got := rig.Quantile(times, q); got != want {
			t.Errorf("quantile(%.2f) = %d, want %d", q, got, want)
		}
	}
}
