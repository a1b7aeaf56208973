package api

import (
	"bytes"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portolan.dev/portolan/internal/cluster"
)

// fields are the fields of a protobuf message that are kept, by number, and what
// is kept of each. The others are cut out before the message is decoded, which
// saves memory: most of what an API server sends is not used.
type fields []fields

// whole keeps all of a field.
var whole = fields{}

// kept returns the fields that are kept of each kind: those that package object
// and the Reflector read. Numbers are those of generated.proto in k8s.io/api and
// k8s.io/apimachinery. Kinds that are not listed are kept whole.
func (c *Config) kept() map[string]fields {
	switch c.Detail {
	case All, ForSlices:
		return nil
	case ForProxy:
		return keptForProxy()
	case ForPolicy:
		kept := keptForPolicy()
		if c.Announce {
			kept[cluster.KindService.String()][2][21] = whole // spec: loadBalancerClass
			kept[cluster.KindNode.String()][2][4] = whole     // spec: unschedulable
			kept[cluster.KindNode.String()][3][4] = whole     // status: conditions
		}
		return kept
	case ForGateway:
		return keptForGateway()
	case ForLoadBalancer:
		return keptForLoadBalancer()
	}
	return c.keptForNames()
}

// keptForNames returns the fields that servers of DNS need.
func (c *Config) keptForNames() map[string]fields {
	// name, namespace, resourceVersion, annotations
	meta := fields{1: whole, 3: whole, 6: whole, 12: whole}
	return map[string]fields{
		cluster.KindNamespace.String():     {1: meta},
		cluster.KindService.String():       c.serviceForNames(meta),
		cluster.KindEndpointSlice.String(): c.sliceForNames(),
		cluster.KindPod.String(): {
			1: meta,
			2: {16: whole, 17: whole},          // spec: hostname, subdomain
			3: {1: whole, 6: whole, 12: whole}, // status: phase, podIP, podIPs
		},
		cluster.KindIngress.String(): {
			1: meta,
			2: {3: {1: whole}}, // spec: rules, their host
			3: {1: whole},      // status: loadBalancer
		},
		cluster.KindNode.String(): {
			1: meta,
			3: {5: whole}, // status: addresses
		},
	}
}

func (c *Config) serviceForNames(meta fields) fields {
	service := fields{
		1: meta,
		2: { // spec
			1:  {1: whole, 2: whole, 3: whole}, // ports: name, protocol, port
			3:  whole,                          // clusterIP
			4:  whole,                          // type
			5:  nil,                            // externalIPs
			10: whole,                          // externalName
			13: whole,                          // publishNotReadyAddresses
			18: whole,                          // clusterIPs
			19: whole,                          // ipFamilies
		},
		3: nil, // status
	}
	if c.External {
		service[2][5], service[3] = whole, fields{1: whole} // loadBalancer
	}
	return service
}

func (c *Config) sliceForNames() fields {
	endpoint := fields{
		1: whole,                // addresses
		2: {1: whole, 2: whole}, // conditions: ready, serving
		3: whole,                // hostname
		4: nil,                  // targetRef
	}
	if c.Detail == ForPodNames {
		endpoint[4] = fields{1: whole, 3: whole} // kind, name
	}
	return fields{
		1: {1: whole, 3: whole, 6: whole, 11: whole, 12: whole}, // metadata, with labels
		2: endpoint,
		3: {1: whole, 2: whole, 3: whole}, // ports: name, protocol, port
		4: whole,                          // addressType
	}
}

// keptForProxy returns the fields that service proxies need.
func keptForProxy() map[string]fields {
	// name, namespace, resourceVersion, creationTimestamp, deletionTimestamp, labels, annotations
	meta := fields{1: whole, 3: whole, 6: whole, 8: whole, 9: whole, 11: whole, 12: whole}
	return map[string]fields{
		cluster.KindService.String(): {
			1: meta,
			2: { // spec
				1:  {1: whole, 2: whole, 3: whole, 5: whole}, // ports: name, protocol, port, nodePort
				3:  whole,                                    // clusterIP
				4:  whole,                                    // type
				5:  whole,                                    // externalIPs
				7:  whole,                                    // sessionAffinity
				9:  whole,                                    // loadBalancerSourceRanges
				10: whole,                                    // externalName
				11: whole,                                    // externalTrafficPolicy
				12: whole,                                    // healthCheckNodePort
				14: whole,                                    // sessionAffinityConfig
				18: whole,                                    // clusterIPs
				19: whole,                                    // ipFamilies
				22: whole,                                    // internalTrafficPolicy
			},
			3: {1: whole}, // status: loadBalancer
		},
		cluster.KindEndpointSlice.String(): {
			1: meta,
			2: { // endpoints
				1: whole, // addresses
				2: whole, // conditions
				3: whole, // hostname, which is checked
				6: whole, // nodeName
				8: whole, // hints
			},
			3: {1: whole, 2: whole, 3: whole}, // ports: name, protocol, port
			4: whole,                          // addressType
		},
		cluster.KindNode.String(): {
			1: meta,
			2: {5: {1: whole}, 7: whole}, // spec: taints, their key; podCIDRs
			3: {5: whole},                // status: addresses
		},
		cluster.KindServiceCIDR.String(): {
			1: meta,
			2: whole, // spec
		},
	}
}

// keptForPolicy returns the fields that service proxies and policies need.
func keptForPolicy() map[string]fields {
	kept := keptForProxy()
	// name, namespace, uid, resourceVersion, deletionTimestamp, labels, annotations
	meta := fields{1: whole, 3: whole, 5: whole, 6: whole, 9: whole, 11: whole, 12: whole}
	ports := fields{1: whole, 3: whole, 4: whole} // name, containerPort, protocol
	kept[cluster.KindPod.String()] = fields{
		1: meta,
		2: { // spec
			2:  {6: ports},       // containers: ports
			10: whole,            // nodeName
			11: whole,            // hostNetwork
			16: whole, 17: whole, // hostname and subdomain, which are checked
			20: {6: ports, 24: whole}, // initContainers: ports, restartPolicy
		},
		3: {1: whole, 6: whole, 12: whole}, // status: phase, podIP, podIPs
	}
	kept[cluster.KindNamespace.String()] = fields{1: meta}
	service := kept[cluster.KindService.String()]
	service[2][1][4], service[2][2] = whole, whole // spec: targetPort of ports, selector
	return kept
}

// keptForGateway returns the fields that gateways need of kinds that are sent as protobuf.
func keptForGateway() map[string]fields {
	kept := keptForProxy()
	// name, namespace, resourceVersion, generation, creationTimestamp, labels, annotations
	meta := fields{1: whole, 3: whole, 6: whole, 7: whole, 8: whole, 11: whole, 12: whole}
	kept[cluster.KindNamespace.String()] = fields{1: meta}
	kept[cluster.KindService.String()] = fields{
		1: meta,
		2: { // spec
			1:  {1: whole, 2: whole, 3: whole, 6: whole}, // ports: name, protocol, port, appProtocol
			3:  whole,                                    // clusterIP
			4:  whole,                                    // type
			7:  whole,                                    // sessionAffinity
			10: whole,                                    // externalName
			13: whole,                                    // publishNotReadyAddresses
			14: whole,                                    // sessionAffinityConfig
			18: whole,                                    // clusterIPs
			19: whole,                                    // ipFamilies
			22: whole,                                    // internalTrafficPolicy
			23: whole,                                    // trafficDistribution
		},
		3: {1: whole}, // status: loadBalancer
	}
	kept[cluster.KindIngress.String()] = fields{1: meta, 2: whole, 3: {1: whole}} // spec; status: loadBalancer
	kept[cluster.KindIngressClass.String()] = fields{1: meta, 2: whole}
	kept[cluster.KindSecret.String()] = fields{1: meta, 2: whole, 3: whole}    // data, type
	kept[cluster.KindConfigMap.String()] = fields{1: meta, 2: whole, 3: whole} // data, binaryData
	return kept
}

// keptForLoadBalancer returns the fields that a controller of load balancers needs.
func keptForLoadBalancer() map[string]fields {
	// name, namespace, resourceVersion, creationTimestamp, deletionTimestamp, labels, annotations
	meta := fields{1: whole, 3: whole, 6: whole, 8: whole, 9: whole, 11: whole, 12: whole}
	return map[string]fields{
		cluster.KindNamespace.String(): {1: meta},
		cluster.KindService.String(): {
			1: meta,
			2: { // spec
				1:  {1: whole, 2: whole, 3: whole}, // ports: name, protocol, port
				2:  whole,                          // selector
				3:  whole,                          // clusterIP
				4:  whole,                          // type
				8:  whole,                          // loadBalancerIP
				10: whole,                          // externalName
				11: whole,                          // externalTrafficPolicy
				17: whole,                          // ipFamilyPolicy
				18: whole,                          // clusterIPs
				19: whole,                          // ipFamilies
				21: whole,                          // loadBalancerClass
			},
			3: {1: whole}, // status: loadBalancer
		},
	}
}

// cut removes from a message, in place, the fields that are not kept. Nil fields
// keep everything.
func (f fields) cut(message []byte) ([]byte, error) {
	if f == nil {
		return message, nil
	}
	kept := message[:0]
	for rest := message; len(rest) > 0; {
		number, wireType, tag := protowire.ConsumeTag(rest)
		if tag < 0 {
			return nil, protowire.ParseError(tag)
		}
		size := protowire.ConsumeFieldValue(number, wireType, rest[tag:])
		if size < 0 {
			return nil, protowire.ParseError(size)
		}
		field := rest[:tag+size]
		rest = rest[len(field):]
		if int(number) >= len(f) || f[number] == nil {
			continue
		}
		inner := f[number]
		if wireType != protowire.BytesType || len(inner) == 0 {
			kept = append(kept, field...)
			continue
		}
		value, _ := protowire.ConsumeBytes(field[tag:])
		head := len(field) - len(value) // the tag and the length
		value, err := inner.cut(value)
		if err != nil {
			return nil, err
		}
		kept = append(kept, field[:head]...)
		setLength(kept[len(kept)-head+tag:], len(value))
		kept = append(kept, value...)
	}
	return kept, nil
}

// setLength writes a length as a varint that fills buf, padded if need be.
func setLength(buf []byte, n int) {
	last := len(buf) - 1
	for i := range last {
		buf[i] = byte(n) | 0x80
		n >>= 7
	}
	buf[last] = byte(n)
}

// cutting decodes objects without the fields that are not kept.
type cutting struct {
	runtime.Serializer
	kept map[string]fields // by kind
}

// Decode decodes a single object. It overwrites wire.
func (c cutting) Decode(
	wire []byte,
	defaults *schema.GroupVersionKind,
	into runtime.Object,
) (runtime.Object, *schema.GroupVersionKind, error) {
	if unknown, ok := bytes.CutPrefix(wire, []byte(protobufMagic)); ok {
		if kept := c.kept[string(first(first(unknown, fieldTypeMeta), fieldKind))]; kept != nil {
			cut, err := fields{fieldTypeMeta: whole, fieldRaw: kept}.cut(unknown)
			if err != nil {
				return nil, nil, err
			}
			wire = wire[:len(protobufMagic)+len(cut)]
		}
	}
	return c.Serializer.Decode(wire, defaults, into)
}

// first returns the value of the first length-delimited field with a number.
func first(message []byte, of protowire.Number) []byte {
	for len(message) > 0 {
		number, wireType, size := protowire.ConsumeField(message)
		if size < 0 {
			return nil
		}
		if number == of && wireType == protowire.BytesType {
			_, _, tag := protowire.ConsumeTag(message)
			v, _ := protowire.ConsumeBytes(message[tag:])
			return v
		}
		message = message[size:]
	}
	return nil
}

// cuttingCodecs are codecs that decode protobuf with cutting.
type cuttingCodecs struct {
	runtime.NegotiatedSerializer
	kept map[string]fields
}

// SupportedMediaTypes returns those of the codecs.
func (c cuttingCodecs) SupportedMediaTypes() []runtime.SerializerInfo {
	types := slices.Clone(c.NegotiatedSerializer.SupportedMediaTypes())
	for i := range types {
		if types[i].MediaType == runtime.ContentTypeProtobuf {
			types[i].Serializer = cutting{types[i].Serializer, c.kept}
		}
	}
	return types
}
