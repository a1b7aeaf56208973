package apiobject

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// state is a Pod's state as kubectl prints it.
type state struct {
	reason       string // the column STATUS
	ready, total int    // containers
	restarts     int
	restarted    metav1.Time // time of the last restart
}

// stateOf derives a Pod's state from its status as kubectl does (k8s.io/kubernetes,
// pkg/printers/internalversion, printPod), with two differences: the reason of a running
// simulated Pod is Simulated, and all containers of a ready Pod without container
// statuses count as ready.
func stateOf(p *corev1.Pod) state {
	s := state{reason: orElse(p.Status.Reason, string(p.Status.Phase)), total: len(p.Spec.Containers)}
	for i := range p.Spec.InitContainers {
		if isSidecar(&p.Spec.InitContainers[i]) {
			s.total++
		}
	}
	if c := condition(&p.Status, corev1.PodScheduled); c != nil && c.Reason == corev1.PodReasonSchedulingGated {
		s.reason = c.Reason
	}
	if waiting := s.readInitContainers(p); !waiting || isTrue(&p.Status, corev1.PodInitialized) {
		s.readContainers(p)
	}
	ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	switch {
	case p.DeletionTimestamp != nil && p.Status.Reason == "NodeLost":
		s.reason = "Unknown"
	case p.DeletionTimestamp != nil && !ended:
		s.reason = "Terminating"
	case p.Annotations[Simulated] == "true" && s.reason == string(corev1.PodRunning):
		s.reason = "Simulated"
	}
	if len(p.Status.ContainerStatuses) == 0 && isTrue(&p.Status, corev1.PodReady) {
		s.ready = s.total
	}
	return s
}

// isSidecar reports whether an init container is a sidecar, one with restartPolicy
// Always.
func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// readInitContainers evaluates the init containers and reports whether one has not
// completed.
func (s *state) readInitContainers(p *corev1.Pod) (waiting bool) {
	sidecars := make(map[string]bool)
	for i := range p.Spec.InitContainers {
		sidecars[p.Spec.InitContainers[i].Name] = isSidecar(&p.Spec.InitContainers[i])
	}
	all := *s
	for i := range p.Status.InitContainerStatuses {
		c := &p.Status.InitContainerStatuses[i]
		all.countRestarts(c)
		if sidecars[c.Name] {
			s.countRestarts(c)
		}
		done := c.State.Terminated != nil && c.State.Terminated.ExitCode == 0
		started := sidecars[c.Name] && c.Started != nil && *c.Started
		if started && !done && c.Ready {
			s.ready++
		}
		if done || started {
			continue
		}
		s.reason, waiting = fmt.Sprintf("Init:%d/%d", i, len(p.Spec.InitContainers)), true
		if reason := terminationReason(c.State.Terminated); reason != "" {
			s.reason = "Init:" + reason
		} else if w := c.State.Waiting; w != nil && w.Reason != "" && w.Reason != "PodInitializing" {
			s.reason = "Init:" + w.Reason
		}
		break
	}
	if waiting && !isTrue(&p.Status, corev1.PodInitialized) {
		s.restarts, s.restarted = all.restarts, all.restarted
	}
	return waiting
}

// readContainers evaluates the containers that are not init containers. If several have a
// reason, that of the first one applies.
func (s *state) readContainers(p *corev1.Pod) {
	running, failure := false, ""
	for i := len(p.Status.ContainerStatuses) - 1; i >= 0; i-- {
		c := &p.Status.ContainerStatuses[i]
		s.countRestarts(c)
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			s.reason = c.State.Waiting.Reason
		case c.State.Terminated != nil:
			s.reason = terminationReason(c.State.Terminated)
			if c.State.Terminated.ExitCode != 0 {
				failure = s.reason
			}
		case c.Ready && c.State.Running != nil:
			running = true
			s.ready++
		}
	}
	if s.reason != "Completed" {
		return
	}
	switch {
	case running && isTrue(&p.Status, corev1.PodReady):
		s.reason = string(corev1.PodRunning)
	case failure != "":
		s.reason = failure
	case running:
		s.reason = "NotReady"
	}
}

// countRestarts adds a container's restarts.
func (s *state) countRestarts(c *corev1.ContainerStatus) {
	s.restarts += int(c.RestartCount)
	if t := c.LastTerminationState.Terminated; t != nil && s.restarted.Before(&t.FinishedAt) {
		s.restarted = t.FinishedAt
	}
}

// terminationReason returns why a container terminated; empty if it did not.
func terminationReason(t *corev1.ContainerStateTerminated) string {
	switch {
	case t == nil:
		return ""
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	}
	return fmt.Sprintf("ExitCode:%d", t.ExitCode)
}
