//go:build linux

package pods

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portolan.dev/portolan/test/e2e/container"
	"portolan.dev/portolan/test/e2e/process"
)

// pod is a Pod that was started.
type pod struct {
	object  *corev1.Pod
	dir     string
	network *network
	process *process.Process
	started metav1.Time
}

// start makes what a Pod needs and starts its process. It fails as long as a volume's object is missing.
func (n *Node) start(ctx context.Context, object *corev1.Pod) (*pod, error) {
	if len(object.Spec.Containers) != 1 {
		return nil, fmt.Errorf("%d containers, want one", len(object.Spec.Containers))
	}
	p := &pod{object: object, dir: filepath.Join(n.config.Dir, string(object.UID))}
	plan, err := n.plan(ctx, p)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(p.dir))
	}
	n.made++
	n.last = n.last.Next()
	if p.network, err = newNetwork(fmt.Sprintf("pod%d", n.made), n.last); err != nil {
		return nil, err
	}
	plan.NetworkFile = p.network.Path()
	if p.process, err = plan.process(n.log(object.Namespace, object.Name)); err != nil {
		return nil, errors.Join(err, p.close())
	}
	p.started = metav1.Now()
	if err := p.process.Start(); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// plan describes the Pod's process, and writes its files.
func (n *Node) plan(ctx context.Context, p *pod) (*plan, error) {
	c := &p.object.Spec.Containers[0]
	program, err := n.program(c.Image)
	if err != nil {
		return nil, err
	}
	root := filepath.Join(p.dir, "root")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, err
	}
	target := "/" + filepath.Base(program)
	out := &plan{Args: append([]string{target}, c.Args...)}
	out.Root, out.Mounts = root, []container.Mount{{Source: program, Target: target}}
	for _, e := range c.Env {
		out.Env = append(out.Env, e.Name+"="+p.value(e))
	}
	for _, v := range p.object.Spec.Volumes {
		source := filepath.Join(p.dir, "volumes", v.Name)
		if err := n.writeVolume(ctx, p.object.Namespace, v, source); err != nil {
			return nil, fmt.Errorf("volume %s: %w", v.Name, err)
		}
		for _, m := range c.VolumeMounts {
			if m.Name == v.Name {
				out.Mounts = append(out.Mounts, container.Mount{Source: source, Target: m.MountPath})
			}
		}
	}
	return out, nil
}

// value is that of an environment variable.
func (p *pod) value(e corev1.EnvVar) string {
	if e.ValueFrom == nil || e.ValueFrom.FieldRef == nil {
		return e.Value
	}
	switch e.ValueFrom.FieldRef.FieldPath {
	case "metadata.name":
		return p.object.Name
	case "metadata.namespace":
		return p.object.Namespace
	}
	return ""
}

// writeVolume writes the files of a Secret or a ConfigMap. A projected volume, as the token of the Pod's account is
// in, stays empty.
func (n *Node) writeVolume(ctx context.Context, namespace string, v corev1.Volume, dir string) error {
	core := n.config.Client.CoreV1()
	var items []corev1.KeyToPath
	data := map[string][]byte{}
	switch {
	case v.Secret != nil:
		secret, err := core.Secrets(namespace).Get(ctx, v.Secret.SecretName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		items, data = v.Secret.Items, secret.Data
	case v.ConfigMap != nil:
		configMap, err := core.ConfigMaps(namespace).Get(ctx, v.ConfigMap.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		items = v.ConfigMap.Items
		for key, text := range configMap.Data {
			data[key] = []byte(text)
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if len(items) == 0 {
		for key := range data {
			items = append(items, corev1.KeyToPath{Key: key, Path: key})
		}
	}
	for _, item := range items {
		if err := os.WriteFile(filepath.Join(dir, item.Path), data[item.Key], 0o600); err != nil {
			return err
		}
	}
	return nil
}

// check returns why the Pod is not ready. A process that ended is started again.
func (p *pod) check() error {
	if !p.process.Running() {
		return errors.Join(fmt.Errorf("it ended: %s", p.process.State()), p.process.Start())
	}
	listens, err := p.network.listens()
	if err == nil && !listens {
		err = errors.New("it does not listen yet")
	}
	return err
}

// status is that of a Pod that is ready.
func (p *pod) status() corev1.PodStatus {
	condition := func(kind corev1.PodConditionType) corev1.PodCondition {
		return corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}
	}
	address := p.network.address.String()
	c := &p.object.Spec.Containers[0]
	return corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}}, StartTime: &p.started,
		Conditions: []corev1.PodCondition{
			condition(corev1.PodScheduled), condition(corev1.PodInitialized), condition(corev1.ContainersReady),
			condition(corev1.PodReady),
		},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: c.Name, Image: c.Image, Ready: true, Started: new(true),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: p.started}},
		}},
	}
}

// close ends the process and removes its files. Its log stays.
func (p *pod) close() error {
	if p.process != nil {
		p.process.Stop(0)
	}
	return errors.Join(p.network.close(), os.RemoveAll(p.dir))
}
