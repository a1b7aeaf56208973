package plan

import "portolan.dev/portolan/internal/cluster"

// Kinds returns the kinds that a Compiler reads.
func Kinds() []cluster.Kind { return []cluster.Kind{cluster.KindNode, cluster.KindServiceCIDR} }
