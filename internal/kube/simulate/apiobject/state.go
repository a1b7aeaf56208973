package apiobject

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// state is what kubectl says of a Pod and its containers.
type state struct {
	reason       string // the column STATUS
	ready, total int    // containers
	restarts     int
	restarted    metav1.Time // the last of them
}

// stateOf reads a Pod's state from its status, as kubectl does it
// (k8s.io/kubernetes, pkg/printers/internalversion, printPod), but for two
// things: the reason of a simulated Pod that runs says so, and all containers
// count as ready of a Pod that is ready and says nothing of its containers.
func stateOf(p *corev1.Pod) state {
	s := state{reason: or(p.Status.Reason, string(p.Status.Phase)), total: len(p.Spec.Containers)}
	for i := range p.Spec.InitContainers {
		if goesOn(&p.Spec.InitContainers[i]) {
			s.total++
		}
	}
	if c := condition(&p.Status, corev1.PodScheduled); c != nil && c.Reason == corev1.PodReasonSchedulingGated {
		s.reason = c.Reason
	}
	if waiting := s.initContainers(p); !waiting || isTrue(&p.Status, corev1.PodInitialized) {
		s.containers(p)
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

// goesOn reports whether an init container goes on running beside the others.
func goesOn(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// initContainers reads those, and reports whether one is not done.
func (s *state) initContainers(p *corev1.Pod) (waiting bool) {
	lasting := make(map[string]bool)
	for i := range p.Spec.InitContainers {
		lasting[p.Spec.InitContainers[i].Name] = goesOn(&p.Spec.InitContainers[i])
	}
	all := *s
	for i := range p.Status.InitContainerStatuses {
		c := &p.Status.InitContainerStatuses[i]
		all.count(c)
		if lasting[c.Name] {
			s.count(c)
		}
		done := c.State.Terminated != nil && c.State.Terminated.ExitCode == 0
		started := lasting[c.Name] && c.Started != nil && *c.Started
		if started && !done && c.Ready {
			s.ready++
		}
		if done || started {
			continue
		}
		s.reason, waiting = fmt.Sprintf("Init:%d/%d", i, len(p.Spec.InitContainers)), true
		if why := ended(c.State.Terminated); why != "" {
			s.reason = "Init:" + why
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

// containers reads those that are not init containers; the first one's reason
// counts.
func (s *state) containers(p *corev1.Pod) {
	running, failure := false, ""
	for i := len(p.Status.ContainerStatuses) - 1; i >= 0; i-- {
		c := &p.Status.ContainerStatuses[i]
		s.count(c)
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			s.reason = c.State.Waiting.Reason
		case c.State.Terminated != nil:
			s.reason = ended(c.State.Terminated)
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

// count adds a container's restarts.
func (s *state) count(c *corev1.ContainerStatus) {
	s.restarts += int(c.RestartCount)
	if t := c.LastTerminationState.Terminated; t != nil && s.restarted.Before(&t.FinishedAt) {
		s.restarted = t.FinishedAt
	}
}

// ended is why a container ended; empty of one that did not.
func ended(t *corev1.ContainerStateTerminated) string {
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
