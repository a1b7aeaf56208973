package e2e

import (
	"os"
	"testing"

	"portolan.dev/portolan/test/e2e/container"
)

func TestMain(m *testing.M) {
	container.Main()
	os.Exit(run(m))
}
