package deploy

import (
	"os"
	"testing"

	"portolan.dev/portolan/test/e2e/container"
)

func TestMain(m *testing.M) {
	container.Main()
	os.Exit(m.Run())
}
