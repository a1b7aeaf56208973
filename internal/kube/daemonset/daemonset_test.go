package daemonset

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"portolan.dev/portolan/internal/kube/api"
)

const annotation = "example.com/left"

// world is an API server whose answers a test decides.
type world struct {
	answer func() (*appsv1.DaemonSet, error)
	log    bytes.Buffer
}

func (w *world) daemonSet() *DaemonSet {
	set := fake.NewClientset()
	set.PrependReactor("get", "daemonsets", func(a clienttesting.Action) (bool, runtime.Object, error) {
		get := a.(clienttesting.GetAction)
		if get.GetNamespace() != "kube-system" || get.GetName() != "agent" {
			return true, nil, errors.New("another object: " + get.GetNamespace() + "/" + get.GetName())
		}
		there, err := w.answer()
		return true, there, err
	})
	d := New(Config{Name: "agent", Annotation: annotation, Log: slog.New(slog.NewTextHandler(&w.log, nil))})
	d.client = func() (client, error) { return client{set, "kube-system"}, nil }
	return d
}

func there() (*appsv1.DaemonSet, error) { return annotated(annotation), nil }

// annotated returns a DaemonSet whose Pods have an annotation.
func annotated(name string) *appsv1.DaemonSet {
	d := &appsv1.DaemonSet{}
	d.Spec.Template.Annotations = map[string]string{name: ""}
	return d
}

func refused(err error) func() (*appsv1.DaemonSet, error) {
	return func() (*appsv1.DaemonSet, error) { return nil, err }
}

var daemonSets = schema.GroupResource{Group: "apps", Resource: "daemonsets"}

var errAway = errors.New("connection refused")

// endTime is longer than any pause, so that there is more than one question.
const endTime = 10 * time.Second

func TestRemoved(t *testing.T) {
	t.Parallel()
	for claim, test := range map[string]struct {
		answer func() (*appsv1.DaemonSet, error)
		want   bool
		err    error
	}{
		"the Pod is replaced": {answer: there},
		"the DaemonSet is gone": {
			answer: refused(apierrors.NewNotFound(daemonSets, "agent")), want: true,
		},
		"it waits for its Pods to go": {answer: func() (*appsv1.DaemonSet, error) {
			d := annotated(annotation)
			d.DeletionTimestamp = &metav1.Time{Time: time.Now()}
			return d, nil
		}, want: true},
		"its next Pods do something else": {answer: func() (*appsv1.DaemonSet, error) {
			return annotated("other"), nil
		}, want: true},
		"the role is gone": {
			answer: refused(apierrors.NewForbidden(daemonSets, "agent", nil)), err: fs.ErrPermission,
		},
		"the account is gone": {
			answer: refused(apierrors.NewUnauthorized("no such account")), err: fs.ErrPermission,
		},
		"the API server is away": {answer: refused(errAway), err: errAway},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := &world{answer: there}
				d := w.daemonSet()
				d.Find(t.Context())
				w.answer = test.answer
				ctx, cancel := context.WithTimeout(t.Context(), endTime)
				defer cancel()
				got, err := d.Removed(ctx)
				if got != test.want || !errors.Is(err, test.err) {
					t.Errorf("Removed() = %v, %v, want %v, %v", got, err, test.want, test.err)
				}
				if w.log.Len() > 0 {
					t.Errorf("log: %s", w.log.String())
				}
			})
		})
	}
}

// TestRemovedLater: an API server that fails at first is asked again.
func TestRemovedLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{answer: there}
		d := w.daemonSet()
		d.Find(t.Context())
		w.answer = func() (*appsv1.DaemonSet, error) {
			w.answer = refused(apierrors.NewNotFound(daemonSets, "agent"))
			return nil, errors.New("connection refused")
		}
		if removed, err := d.Removed(t.Context()); !removed || err != nil {
			t.Errorf("Removed() = %v, %v, want true", removed, err)
		}
	})
}

// TestRefusedForAMoment: a role that is replaced is no removal, and no loss of rights.
func TestRefusedForAMoment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{answer: there}
		d := w.daemonSet()
		d.Find(t.Context())
		answers := 0
		w.answer = func() (*appsv1.DaemonSet, error) {
			if answers++; answers < refusals {
				return nil, apierrors.NewForbidden(daemonSets, "agent", nil)
			}
			return there()
		}
		if removed, err := d.Removed(t.Context()); removed || err != nil {
			t.Errorf("Removed() = %v, %v, want false", removed, err)
		}
	})
}

// TestNeverFound: a DaemonSet that was not found cannot be removed; this is logged once.
func TestNeverFound(t *testing.T) {
	t.Parallel()
	for claim, answer := range map[string]func() (*appsv1.DaemonSet, error){
		"there is none":          refused(apierrors.NewNotFound(daemonSets, "agent")),
		"it may not be read":     refused(apierrors.NewForbidden(daemonSets, "agent", nil)),
		"it has no annotation":   func() (*appsv1.DaemonSet, error) { return &appsv1.DaemonSet{}, nil },
		"the API server is away": refused(errors.New("connection refused")),
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := &world{answer: answer}
				d := w.daemonSet()
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				d.Find(ctx)
				if removed, err := d.Removed(t.Context()); removed || err != nil {
					t.Errorf("Removed() = %v, %v, want false", removed, err)
				}
				if n := strings.Count(w.log.String(), "\n"); n != 1 {
					t.Errorf("%d lines are logged, want 1:\n%s", n, w.log.String())
				}
			})
		})
	}
}

// TestFoundLater: a DaemonSet that is found when the API server answers again is.
func TestFoundLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		questions := 0
		w.answer = func() (*appsv1.DaemonSet, error) {
			if questions++; questions < 4 {
				return nil, errors.New("connection refused")
			}
			return there()
		}
		d := w.daemonSet()
		d.Find(t.Context())
		w.answer = refused(apierrors.NewNotFound(daemonSets, "agent"))
		if removed, err := d.Removed(t.Context()); !removed || err != nil {
			t.Errorf("Removed() = %v, %v, want true", removed, err)
		}
	})
}

// TestClient: a client that cannot be made is an error of the first question.
func TestClient(t *testing.T) {
	t.Parallel()
	d := New(Config{Client: api.ClientConfig{Kubeconfig: "/nonexistent"}, Name: "agent", Annotation: annotation})
	if err := d.check(t.Context()); err == nil || !strings.Contains(err.Error(), "daemonset agent: ") {
		t.Errorf("check() = %v, want an error of daemonset agent", err)
	}
}
