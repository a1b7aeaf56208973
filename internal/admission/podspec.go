package admission

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"portolan.dev/portolan/internal/podresolv"
	"portolan.dev/portolan/internal/resolvconf"
)

// dnsPod is what of a PodSpec in a namespace matters to DNS.
func dnsPod(namespace, name string, s *corev1.PodSpec) podresolv.Pod {
	p := podresolv.Pod{
		Namespace:        namespace,
		Name:             name,
		HostNetwork:      s.HostNetwork,
		Policy:           podresolv.Policy(s.DNSPolicy),
		Hostname:         s.Hostname,
		Subdomain:        s.Subdomain,
		HostnameOverride: s.HostnameOverride,
	}
	if s.OS != nil {
		p.OS = podresolv.OS(s.OS.Name)
	}
	if s.SetHostnameAsFQDN != nil {
		p.SetHostnameAsFQDN = *s.SetHostnameAsFQDN
	}
	if c := s.DNSConfig; c != nil {
		p.DNSConfig = &podresolv.DNSConfig{Nameservers: c.Nameservers, Searches: c.Searches}
		for _, o := range c.Options {
			option := resolvconf.Option{Name: o.Name}
			if o.Value != nil {
				option.Value = *o.Value
			}
			p.DNSConfig.Options = append(p.DNSConfig.Options, option)
		}
	}
	return p
}

// podOf is the Pod that an object is, or one of those that a controller makes
// from it: of the longest name, with x where a letter is not known yet. It is
// none for other objects.
func podOf(namespace string, o runtime.Object) (pod podresolv.Pod, ok bool) {
	const template = "spec.template.spec"
	var path string
	switch o := o.(type) {
	case *corev1.Pod:
		name := o.Name
		if name == "" {
			name = generated(o.GenerateName)
		}
		pod = dnsPod(namespace, name, &o.Spec)
	case *appsv1.Deployment:
		const hash = "xxxxxxxxxx" // of the template
		path, pod = template, dnsPod(namespace, generated(o.Name+"-"+hash+"-"), &o.Spec.Template.Spec)
	case *appsv1.ReplicaSet:
		path, pod = template, dnsPod(namespace, generated(o.Name+"-"), &o.Spec.Template.Spec)
	case *appsv1.DaemonSet:
		path, pod = template, dnsPod(namespace, generated(o.Name+"-"), &o.Spec.Template.Spec)
	case *appsv1.StatefulSet:
		path, pod = template, statefulPod(namespace, o)
	case *batchv1.Job:
		path, pod = template, jobPod(namespace, &o.ObjectMeta, &o.Spec)
	case *batchv1.CronJob:
		const minutes = "xxxxxxxx" // since 1970, when the Job is due
		job := metav1.ObjectMeta{Name: o.Name + "-" + minutes}
		path, pod = "spec.jobTemplate."+template, jobPod(namespace, &job, &o.Spec.JobTemplate.Spec)
	default:
		return pod, false
	}
	pod.Path = path
	return pod, true
}

// generated is a name that the API server makes of generateName (apiserver,
// pkg/storage/names).
func generated(base string) string {
	const random, most = "xxxxx", 63
	return base[:min(len(base), most-len(random))] + random
}

// statefulPod is the Pod with the highest ordinal. The controller sets hostname
// and subdomain, whatever the template says.
func statefulPod(namespace string, s *appsv1.StatefulSet) podresolv.Pod {
	last := int32(0)
	if s.Spec.Replicas != nil && *s.Spec.Replicas > 0 {
		last = *s.Spec.Replicas - 1
	}
	if s.Spec.Ordinals != nil {
		last += s.Spec.Ordinals.Start
	}
	name := fmt.Sprintf("%s-%d", s.Name, last)
	pod := dnsPod(namespace, name, &s.Spec.Template.Spec)
	pod.Hostname, pod.Subdomain = name, s.Spec.ServiceName
	return pod
}

// jobPod is a Pod of a Job; those of an indexed Job have the index as hostname,
// unless the template has one.
func jobPod(namespace string, job *metav1.ObjectMeta, s *batchv1.JobSpec) podresolv.Pod {
	if s.CompletionMode == nil || *s.CompletionMode != batchv1.IndexedCompletion {
		return dnsPod(namespace, generated(job.Name+"-"), &s.Template.Spec)
	}
	last := int32(0)
	if s.Completions != nil && *s.Completions > 0 {
		last = *s.Completions - 1
	}
	indexed := fmt.Sprintf("%s-%d", job.Name, last)
	pod := dnsPod(namespace, generated(indexed+"-"), &s.Template.Spec)
	if pod.Hostname == "" {
		pod.Hostname = indexed
	}
	return pod
}
