//go:build linux

package world

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// Channel is a set of CustomResourceDefinitions of the Gateway API.
type Channel string

// The channels.
const (
	Standard     Channel = "standard"
	Experimental Channel = "experimental"
)

// install creates the definitions of a channel, and waits until the API server serves them.
func install(ctx context.Context, c client.Client, channel Channel) error {
	const module = "sigs.k8s.io/gateway-api"
	dir, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return err
	}
	files, err := filepath.Glob(
		filepath.Join(strings.TrimSpace(string(dir)), "config/crd", string(channel), "gateway.*.yaml"),
	)
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		definition := new(apiextensionsv1.CustomResourceDefinition)
		if err := yaml.Unmarshal(text, definition); err != nil {
			return err
		}
		if definition.Kind != "CustomResourceDefinition" {
			continue // a policy about upgrades
		}
		if err := c.Create(ctx, definition); err != nil {
			return err
		}
	}
	const pause, patience = 50 * time.Millisecond, time.Minute
	return wait.PollUntilContextTimeout(ctx, pause, patience, true, func(ctx context.Context) (bool, error) {
		definitions := new(apiextensionsv1.CustomResourceDefinitionList)
		if err := c.List(ctx, definitions); err != nil {
			return false, err
		}
		for _, d := range definitions.Items {
			if !isEstablished(&d) {
				return false, nil
			}
		}
		return true, nil
	})
}

func isEstablished(d *apiextensionsv1.CustomResourceDefinition) bool {
	for _, c := range d.Status.Conditions {
		if c.Type == apiextensionsv1.Established {
			return c.Status == apiextensionsv1.ConditionTrue
		}
	}
	return false
}
