// Package inventory reads what a bug report needs of a cluster beside the model: versions, and the Pods of Portolan
// with their logs. It reads neither environments nor Secrets.
package inventory

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Reader reads a cluster.
type Reader struct {
	// Client's requests have a timeout, or their context has.
	Client kubernetes.Interface
}

// Versions writes the API server's version, and the groups of its API with their versions.
func (r *Reader) Versions(_ context.Context, w io.Writer) error {
	v, err := r.Client.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("version of the API server: %w", err)
	}
	fmt.Fprintf(w, "Kubernetes %s, %s, %s\n", v.GitVersion, v.GoVersion, v.Platform)
	groups, err := r.Client.Discovery().ServerGroups()
	if err != nil {
		return fmt.Errorf("groups of the API: %w", err)
	}
	for _, g := range groups.Groups {
		var versions []string
		for _, v := range g.Versions {
			versions = append(versions, v.Version)
		}
		fmt.Fprintf(w, "%s %s\n", strings.TrimSpace("api "+g.Name), strings.Join(versions, ","))
	}
	return nil
}

// maxNodes is how many Nodes are read.
const maxNodes = 500

// Nodes writes a line for each Node: its versions, kernel and conditions.
func (r *Reader) Nodes(ctx context.Context, w io.Writer) error {
	nodes, err := r.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: maxNodes})
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		var conditions []string
		for _, c := range n.Status.Conditions {
			conditions = append(conditions, fmt.Sprintf("%s=%s", c.Type, c.Status))
		}
		info := n.Status.NodeInfo
		fmt.Fprintf(w, "%s kubelet %s, %s %s, %s, %s, %s\n", n.Name, info.KubeletVersion, info.OSImage, info.Architecture,
			info.KernelVersion, info.ContainerRuntimeVersion, strings.Join(conditions, " "))
	}
	if nodes.Continue != "" {
		fmt.Fprintf(w, "more than %d\n", maxNodes)
	}
	return nil
}

// Pod is what a report has of a Pod.
type Pod struct {
	Namespace  string            `json:"namespace"`
	Name       string            `json:"name"`
	Labels     map[string]string `json:"labels"`
	Node       string            `json:"node"`
	Phase      string            `json:"phase"`
	Conditions map[string]string `json:"conditions"`
	Containers []Container       `json:"containers"`
}

// Container is a container of a Pod. Arguments and environment are not read.
type Container struct {
	Name      string            `json:"name"`
	Image     string            `json:"image"`
	ImageID   string            `json:"imageID"`
	Ready     bool              `json:"ready"`
	Restarts  int32             `json:"restarts"`
	State     string            `json:"state"`
	LastState string            `json:"lastState,omitempty"`
	Limits    map[string]string `json:"limits,omitempty"`
}

// label is the label of Portolan's Pods, whose values begin with the program's name.
const (
	label   = "app.kubernetes.io/name"
	program = "portolan"
	// maxPods is how many Pods of Portolan are reported.
	maxPods = 200
)

// Pods returns the Pods of Portolan in all namespaces, or in one of them.
func (r *Reader) Pods(ctx context.Context, namespace string) (all []Pod, err error) {
	for page := (metav1.ListOptions{LabelSelector: label, Limit: maxNodes}); ; {
		pods, err := r.Client.CoreV1().Pods(namespace).List(ctx, page)
		if err != nil {
			return nil, fmt.Errorf("list pods: %w", err)
		}
		for i := range pods.Items {
			if p := &pods.Items[i]; strings.HasPrefix(p.Labels[label], program) && len(all) < maxPods {
				all = append(all, newPod(p))
			}
		}
		if page.Continue = pods.Continue; page.Continue == "" || len(all) == maxPods {
			return all, nil
		}
	}
}

func newPod(p *corev1.Pod) Pod {
	made := Pod{
		Namespace: p.Namespace, Name: p.Name, Labels: p.Labels, Node: p.Spec.NodeName, Phase: string(p.Status.Phase),
		Conditions: make(map[string]string),
	}
	for _, c := range p.Status.Conditions {
		made.Conditions[string(c.Type)] = string(c.Status)
	}
	for i := range p.Spec.Containers {
		of := &p.Spec.Containers[i]
		c := Container{Name: of.Name, Image: of.Image, Limits: make(map[string]string)}
		for name, q := range of.Resources.Limits {
			c.Limits[string(name)] = q.String()
		}
		at := slices.IndexFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == of.Name })
		if at >= 0 {
			s := &p.Status.ContainerStatuses[at]
			c.ImageID, c.Ready, c.Restarts = s.ImageID, s.Ready, s.RestartCount
			c.State, c.LastState = state(&s.State), state(&s.LastTerminationState)
		}
		made.Containers = append(made.Containers, c)
	}
	return made
}

// state returns the state of a container in words, without the message: that may be anything.
func state(s *corev1.ContainerState) string {
	switch {
	case s.Running != nil:
		return "running since " + s.Running.StartedAt.UTC().Format("2006-01-02T15:04:05Z")
	case s.Waiting != nil:
		return "waiting: " + s.Waiting.Reason
	case s.Terminated != nil:
		return fmt.Sprintf("ended with status %d: %s", s.Terminated.ExitCode, s.Terminated.Reason)
	}
	return ""
}

// WritePods writes Pods as JSON.
func WritePods(w io.Writer, pods []Pod) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(pods)
}

// Log is which log to read.
type Log struct {
	Pod       *Pod
	Container string
	// Previous is that of the container before its last restart.
	Previous bool
	// Lines and Octets limit it.
	Lines, Octets int64
}

// Log writes the end of a container's log.
func (r *Reader) Log(ctx context.Context, w io.Writer, l Log) error {
	options := &corev1.PodLogOptions{
		Container: l.Container, Previous: l.Previous, TailLines: &l.Lines, LimitBytes: &l.Octets, Timestamps: true,
	}
	in, err := r.Client.CoreV1().Pods(l.Pod.Namespace).GetLogs(l.Pod.Name, options).Stream(ctx)
	if err != nil {
		return fmt.Errorf("log of %s/%s %s: %w", l.Pod.Namespace, l.Pod.Name, l.Container, err)
	}
	defer in.Close()
	_, err = io.Copy(w, in)
	return err
}
