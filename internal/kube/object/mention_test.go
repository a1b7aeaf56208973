package object

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portolan.dev/portolan/internal/cluster"
)

// TestMentions checks which texts have the name of a Service.
func TestMentions(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"web.shop.svc": {"web.shop.svc"},
		"http://web.shop.svc.cluster.local:8080/a?b":     {"web.shop.svc.cluster.local"},
		"--to=Web.shop.svc.cluster.local.":               {"web.shop.svc.cluster.local"},
		"a-0.db.data.svc:1,a-1.db.data.svc:1":            {"a-0.db.data.svc", "a-1.db.data.svc"},
		"user:secret@db.data.svc/app":                    {"db.data.svc"},
		"_sql._tcp.db.data.svc.cluster.local":            {"_sql._tcp.db.data.svc.cluster.local"},
		"web.shop.svc web.shop.svc":                      {"web.shop.svc"},
		"$(HOST).shop.svc":                               nil,
		"web.$(NAMESPACE).svc.cluster.local":             nil,
		"${NAME}-web.shop.svc":                           nil,
		"*.shop.svc.cluster.local,.svc,.cluster.local":   nil,
		"shop.svc.cluster.local":                         nil,
		"http://%s.shop.svc.cluster.local":               nil,
		"pod-%d.db.shop.svc":                             nil,
		"%(name)s.shop.svc":                              nil,
		"${X}db.shop.svc":                                nil,
		"$(A)redis.shop.svc":                             nil,
		"$HOST.shop.svc":                                 nil,
		"__NAME__.shop.svc":                              nil,
		"http://web.__NAMESPACE__.svc.cluster.local":     nil,
		"__NAME__-db.shop.svc":                           nil,
		"_NAME_.shop.svc":                                nil,
		"<name>.shop.svc":                                nil,
		"_http._tcp.web.shop.svc":                        {"_http._tcp.web.shop.svc"},
		"my_web.shop.svc":                                {"my_web.shop.svc"},
		"<app.shop.svc> or {app.shop.svc}":               nil,
		`a\nweb.shop.svc`:                                nil,
		"web.shop.svc%s":                                 nil,
		"http://web.shop.svc${PATH}":                     {"web.shop.svc"},
		"--to=web.shop.svc.$(DOMAIN)":                    {"web.shop.svc"},
		"user@db.data.svc$(PATH)":                        {"db.data.svc"},
		`{\"to\":\"web.shop.svc\"}`:                      {"web.shop.svc"},
		"https://h/api/Company.Product.svc?wsdl":         nil,
		"/srv/sites/Company.Product.svc":                 nil,
		"dns:///web.shop.svc:50051":                      {"web.shop.svc"},
		"www.example.com and a file named web.shop.svcs": nil,
	} {
		var got []string
		for _, m := range mentions("args[0]", text) {
			got = append(got, m.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("mentions(%q) = %q, want %q", text, got, want)
		}
	}
}

// TestPodSpecMentions checks that the names in all containers are found, with their fields.
func TestPodSpecMentions(t *testing.T) {
	t.Parallel()
	spec := PodSpec(&metav1.ObjectMeta{}, &corev1.PodSpec{
		InitContainers: []corev1.Container{{Command: []string{"wait", "db.data.svc:5432"}}},
		Containers: []corev1.Container{
			{Args: []string{"--to=web.shop.svc"}},
			{Env: []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "CACHE", Value: "redis://cache.shop.svc"}}},
		},
	})
	want := []cluster.Mention{
		{Field: "initContainers[0].command[1]", Name: "db.data.svc"},
		{Field: "containers[0].args[0]", Name: "web.shop.svc"},
		{Field: "containers[1].env[1].value", Name: "cache.shop.svc"},
	}
	if !slices.Equal(spec.Mentions, want) {
		t.Errorf("Mentions = %v, want %v", spec.Mentions, want)
	}
}
