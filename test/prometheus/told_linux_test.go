package prometheus

import (
	"fmt"
	"time"
)

// untried are the alerts that no process here can cause, and why. Their metrics are told to Prometheus instead.
var untried = map[string]string{
	"PortolanProxyNotInKernel": "a kernel refuses no valid transaction, and an agent that may send none ends; " +
		"internal/proxy/app tests a table that fails",
	"PortolanPolicyNotInKernel": "as PortolanProxyNotInKernel; internal/policy/app tests a table that fails",
	"PortolanWebhookPassedOver": "the metric is that of kube-apiserver; test/e2e/admission runs one",
}

// tell has Prometheus scrape a page with metrics of the alerts that are untried.
func (x *troubles) tell() {
	began := time.Now()
	x.m.watch("told", target{page: func() string {
		n := int(time.Since(began).Seconds())
		return fmt.Sprintf(`portolan_proxy_sync_failures_total %d
portolan_policy_sync_failures_total %d
apiserver_admission_webhook_fail_open_count{name="pods.webhook.portolan.dev",type="admit"} %d
`, n, n, n)
	}})
}
