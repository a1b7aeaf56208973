package synthetic

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"os"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// NewClient returns a client without a rate limit.
func NewClient(cfg *rest.Config) (*kubernetes.Clientset, error) {
	cfg.ContentType = runtime.ContentTypeProtobuf
	cfg.QPS = -1
	return kubernetes.NewForConfig(cfg)
}

// Create creates all objects except Pods.
func (c *Cluster) Create(ctx context.Context, client *kubernetes.Clientset) error {
	core, discovery, options := client.CoreV1(), client.DiscoveryV1(), metav1.CreateOptions{}
	err := atOnce(ctx, slices.Collect(c.AllNamespaces()), func(ctx context.Context, o *corev1.Namespace) error {
		_, err := core.Namespaces().Create(ctx, o, options)
		return err
	})
	if err != nil {
		return err
	}
	err = atOnce(ctx, slices.Collect(c.AllServices()), func(ctx context.Context, o *corev1.Service) error {
		_, err := core.Services(o.Namespace).Create(ctx, o, options)
		return err
	})
	if err != nil {
		return err
	}
	return atOnce(ctx, slices.Collect(c.AllSlices()), func(ctx context.Context, o *discoveryv1.EndpointSlice) error {
		_, err := discovery.EndpointSlices(o.Namespace).Create(ctx, o, options)
		return err
	})
}

// CreatePods creates the Pods, which run.
func (c *Cluster) CreatePods(ctx context.Context, client *kubernetes.Clientset) error {
	numbers := make([]int, c.Pods)
	for i := range numbers {
		numbers[i] = i
	}
	return atOnce(ctx, numbers, func(ctx context.Context, i int) error {
		want := c.Pod(i)
		pods := client.CoreV1().Pods(want.Namespace)
		there, err := pods.Create(ctx, want, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		there.Status = want.Status
		_, err = pods.UpdateStatus(ctx, there, metav1.UpdateOptions{})
		return err
	})
}

// atOnce calls f for all elements, some concurrently, until one call fails.
func atOnce[T any](ctx context.Context, all []T, f func(context.Context, T) error) error {
	const writers = 32
	group, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range writers {
		group.Go(func() error {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(all) {
					return nil
				}
				if err := f(ctx, all[i]); err != nil {
					return err
				}
			}
			return ctx.Err()
		})
	}
	return group.Wait()
}

// WriteManifests writes all objects except Pods into a file of YAML documents, each as
// JSON on one line.
func (c *Cluster) WriteManifests(file string) error {
	return writeDocuments(file, c.all(), json.Marshal)
}

// WriteManifests writes all objects into a file of YAML documents, as people and kubectl write them.
func (p *Paths) WriteManifests(file string) error { return writeDocuments(file, p.All(), yaml.Marshal) }

// writeDocuments writes objects as documents of YAML, of which JSON is a part.
func writeDocuments(file string, all iter.Seq[any], marshal func(any) ([]byte, error)) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	b := bufio.NewWriter(f)
	for o := range all {
		document, err := marshal(o)
		if err != nil {
			return err
		}
		_, _ = b.WriteString("---\n") // Flush returns the errors
		_, _ = b.Write(append(bytes.TrimSuffix(document, []byte("\n")), '\n'))
	}
	if err := b.Flush(); err != nil {
		return err
	}
	return f.Close()
}

func (c *Cluster) all() iter.Seq[any] {
	return func(yield func(any) bool) {
		for o := range c.AllNamespaces() {
			if !yield(o) {
				return
			}
		}
		for o := range c.AllServices() {
			if !yield(o) {
				return
			}
		}
		for o := range c.AllSlices() {
			if !yield(o) {
				return
			}
		}
	}
}
