package pods_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/conformance/world"
)

// TestMain runs the tests in a network namespace of their own.
func TestMain(m *testing.M) { world.Main(m) }

const app = "echo"

// TestPods runs two Pods whose volume comes late: they answer with their names, have logs, and go when they are not wanted.
func TestPods(t *testing.T) {
	w := world.Start(t, world.Standard)
	d := deployment()
	if err := w.API.Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "volume"}}
	if err := w.API.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	var list *corev1.PodList
	await.NoError(t, func() (err error) {
		list, err = ready(t, w, 2)
		return err
	})
	for _, pod := range list.Items {
		if name, err := nameOf(pod.Status.PodIP); err != nil || name != pod.Name {
			t.Errorf("%s answers %q, %v; want %s", pod.Status.PodIP, name, err, pod.Name)
		}
	}
	log, err := w.Client().CoreV1().Pods("default").GetLogs(list.Items[0].Name, &corev1.PodLogOptions{}).DoRaw(t.Context())
	if err != nil || !strings.Contains(string(log), "Echoing back request made to / ") {
		t.Errorf("log %q, %v; want the request", log, err)
	}
	before := list.Items
	one := client.RawPatch(types.MergePatchType, []byte(`{"spec": {"replicas": 1}}`))
	if err := w.API.Patch(t.Context(), d, one); err != nil {
		t.Fatal(err)
	}
	await.NoError(t, func() (err error) {
		_, err = ready(t, w, 1)
		return err
	})
	answering := 0
	for _, pod := range before {
		if _, err := nameOf(pod.Status.PodIP); err == nil {
			answering++
		}
	}
	if answering != 1 {
		t.Errorf("%d of the Pods answer, want one", answering)
	}
}

// deployment has two replicas with the volume of a Secret.
func deployment() *appsv1.Deployment {
	labels := map[string]string{"app": app}
	field := &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: app},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					Containers: []corev1.Container{{
						Name: app, Image: "registry.example/echo-basic:v1", Env: []corev1.EnvVar{{Name: "POD_NAME", ValueFrom: field}},
						VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/etc/v"}},
					}},
					Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
						Secret: &corev1.SecretVolumeSource{SecretName: "volume"},
					}}},
				},
			},
		},
	}
}

// ready returns the Pods if there are so many, and all of them are ready.
func ready(t *testing.T, w *world.World, want int) (*corev1.PodList, error) {
	t.Helper()
	list := new(corev1.PodList)
	if err := w.API.List(t.Context(), list, client.MatchingLabels{"app": app}); err != nil {
		return nil, err
	}
	if len(list.Items) != want {
		return nil, fmt.Errorf("%d Pods, want %d", len(list.Items), want)
	}
	for _, pod := range list.Items {
		if pod.Status.Phase != corev1.PodRunning {
			return nil, fmt.Errorf("%s is %s", pod.Name, pod.Status.Phase)
		}
	}
	return list, nil
}

// nameOf asks the program of a Pod for the Pod's name, over a connection of its own: one to a Pod that is gone is
// silent.
func nameOf(address string) (name string, err error) {
	const patience = 2 * time.Second
	asker := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := asker.Get("http://" + address + ":3000/")
	if err != nil {
		return "", err
	}
	var answer struct{ Pod string }
	err = errors.Join(json.NewDecoder(response.Body).Decode(&answer), response.Body.Close())
	return answer.Pod, err
}
