package rolling

import (
	"testing"

	"portolan.dev/portolan/test/e2e/nodens"
)

// TestMain runs the tests in the network namespace of a node.
func TestMain(m *testing.M) { nodens.Main(m) }
