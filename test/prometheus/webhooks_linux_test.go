package prometheus

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"

	"portolan.dev/portolan/internal/kube/apitest"
)

// secretText is a Secret of TLS as a manifest.
func secretText(s *corev1.Secret) string {
	encode := base64.StdEncoding.EncodeToString
	return fmt.Sprintf(
		"apiVersion: v1\nkind: Secret\nmetadata: {namespace: %s, name: %s}\ntype: %s\ndata: {tls.crt: %s, tls.key: %s}\n",
		s.Namespace, s.Name, s.Type, encode(s.Data[corev1.TLSCertKey]), encode(s.Data[corev1.TLSPrivateKeyKey]),
	)
}

// webhooks starts a webhook that cannot read what it needs for a review, and one that cannot renew its certificate.
func (x *troubles) webhooks() {
	config := strings.Replace(webhookConfig, "9158", "9153", 1)
	h, api := x.host("webhook", "9153"), newAPI(x.t)
	h.connect(api)
	x.start(h, config, "webhook")
	h.awaitReady("127.0.0.1:9153")
	api.Misbehave(apitest.Fault{Refuse: func(_, path string) int {
		if strings.Contains(path, "/namespaces/shop") {
			return http.StatusForbidden
		}
		return 0
	}})
	x.repeat(func(int) {
		const post = "curl -sk --max-time 2 -H 'Content-Type: application/json' https://127.0.0.1:8443/mutate"
		_, _ = h.shell(post + " -d '" + review + "'") // the metric counts it
	})

	old, api := x.host("webhook-old", "9153"), newAPI(x.t)
	old.connect(api)
	first := old.start("webhook", "--config", old.settingsOf("first", config))
	old.awaitReady("127.0.0.1:9153")
	first.stop(syscall.SIGTERM)
	api.Misbehave(refusing("/secrets/"))
	// By this life, the certificate should have been renewed.
	x.start(old, strings.Replace(config, "clusterDNS", "certificateLife: 9600h, clusterDNS", 1), "webhook")
}

// review is a review of a Pod, as the API server sends it.
const review = `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "1", ` +
	`"kind": {"group": "", "version": "v1", "kind": "Pod"}, ` +
	`"resource": {"group": "", "version": "v1", "resource": "pods"}, ` +
	`"namespace": "shop", "operation": "CREATE", "object": {"apiVersion": "v1", "kind": "Pod", ` +
	`"metadata": {"name": "web", "namespace": "shop"}, ` +
	`"spec": {"dnsPolicy": "ClusterFirst", "containers": [{"name": "web"}]}}}}`
