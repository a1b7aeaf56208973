package object

import (
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portolan.dev/portolan/internal/cluster"
)

// Deployment converts a Deployment.
func Deployment(d *appsv1.Deployment) (*cluster.Workload, field.ErrorList) {
	return workload(cluster.KindDeployment, &d.ObjectMeta, d.Spec.Replicas, d.Spec.Selector, &d.Spec.Template)
}

// StatefulSet converts a StatefulSet.
func StatefulSet(s *appsv1.StatefulSet) (*cluster.Workload, field.ErrorList) {
	w, errs := workload(cluster.KindStatefulSet, &s.ObjectMeta, s.Spec.Replicas, s.Spec.Selector, &s.Spec.Template)
	w.Service, w.LastOrdinal = s.Spec.ServiceName, max(0, w.Replicas-1)
	if s.Spec.Ordinals != nil && s.Spec.Ordinals.Start < 0 {
		errs = append(errs, field.Invalid(field.NewPath("spec", "ordinals", "start"), s.Spec.Ordinals.Start,
			"must be greater than or equal to 0"))
	}
	if s.Spec.Ordinals != nil {
		w.LastOrdinal += int(s.Spec.Ordinals.Start)
	}
	return w, errs
}

// DaemonSet converts a DaemonSet.
func DaemonSet(d *appsv1.DaemonSet) (*cluster.Workload, field.ErrorList) {
	return workload(cluster.KindDaemonSet, &d.ObjectMeta, nil, d.Spec.Selector, &d.Spec.Template)
}

// Job converts a Job.
func Job(j *batchv1.Job) (*cluster.Workload, field.ErrorList) {
	return job(cluster.KindJob, &j.ObjectMeta, &j.Spec)
}

// CronJob converts a CronJob.
func CronJob(c *batchv1.CronJob) (*cluster.Workload, field.ErrorList) {
	return job(cluster.KindCronJob, &c.ObjectMeta, &c.Spec.JobTemplate.Spec)
}

func job(kind cluster.Kind, meta *metav1.ObjectMeta, s *batchv1.JobSpec) (*cluster.Workload, field.ErrorList) {
	w, errs := workload(kind, meta, s.Parallelism, s.Selector, &s.Template)
	if kind == cluster.KindJob { // the API server adds them to its template
		labels := map[string]string{batchv1.JobNameLabel: meta.Name, "job-name": meta.Name}
		maps.Copy(labels, w.Labels)
		w.Labels = labels
	}
	if s.Completions != nil {
		w.Replicas = min(w.Replicas, int(*s.Completions))
	}
	if s.Suspend != nil && *s.Suspend {
		w.Replicas = 0
	}
	w.Indexed = s.CompletionMode != nil && *s.CompletionMode == batchv1.IndexedCompletion
	return w, errs
}

// workload converts what all kinds of workloads have in common.
func workload(
	kind cluster.Kind,
	meta *metav1.ObjectMeta,
	replicas *int32,
	selector *metav1.LabelSelector,
	template *corev1.PodTemplateSpec,
) (*cluster.Workload, field.ErrorList) {
	k, errs := key(meta, validation.IsDNS1123Subdomain)
	spec := PodSpec(&template.ObjectMeta, &template.Spec)
	w := &cluster.Workload{Kind: kind, Key: k, Replicas: 1, Labels: template.Labels, Spec: *spec}
	if replicas != nil {
		w.Replicas = int(*replicas)
		if *replicas < 0 {
			errs = append(errs, field.Invalid(field.NewPath(w.CountPath()), *replicas, "must be greater than or equal to 0"))
		}
	}
	if selector != nil {
		w.Selector = labelSelector(selector)
	}
	return w, errs
}

// labelSelector converts a label selector.
func labelSelector(s *metav1.LabelSelector) *cluster.Selector {
	selector := &cluster.Selector{Labels: s.MatchLabels}
	for _, e := range s.MatchExpressions {
		selector.Requirements = append(selector.Requirements,
			cluster.Requirement{Label: e.Key, Operator: cluster.Operator(e.Operator), Values: e.Values})
	}
	return selector
}
