package cli

import (
	"testing"

	"portolan.dev/portolan/internal/config"
)

// TestKernelJudgeOfNode checks that the kernel is that of this machine's node with manifests, too: it knows
// nothing of the Pods of other nodes.
func TestKernelJudgeOfNode(t *testing.T) {
	t.Setenv("NODE_NAME", "node-1")
	c := config.Default()
	c.Manifests = "shop.yaml"
	judge, err := kernelJudge(&c, true)
	if err != nil || judge.Node != "node-1" {
		t.Errorf("kernelJudge(with manifests) = %+v, %v, want that of node-1", judge, err)
	}
}
