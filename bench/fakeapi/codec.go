package fakeapi

import (
	"bytes"
	"io"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// codec encodes objects and events.
type codec struct {
	contentType string
	encoder     runtime.Encoder // of objects
	raw         runtime.Encoder // of events
	frames      func(io.Writer) io.Writer
}

var protobufCodec = codec{
	contentType: runtime.ContentTypeProtobuf,
	encoder: scheme.Codecs.EncoderForVersion(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme),
		schema.GroupVersions{corev1.SchemeGroupVersion, discoveryv1.SchemeGroupVersion, networkingv1.SchemeGroupVersion}),
	raw:    protobuf.NewRawSerializer(scheme.Scheme, scheme.Scheme),
	frames: protobuf.LengthDelimitedFramer.NewFrameWriter,
}

// jsonCodec encodes custom resources, which have no other encoding.
var jsonCodec = func() codec {
	custom := runtime.NewScheme()
	utilruntime.Must(gatewayv1.Install(custom))
	inJSON := json.NewSerializerWithOptions(json.DefaultMetaFactory, custom, custom, json.SerializerOptions{})
	return codec{
		contentType: runtime.ContentTypeJSON, raw: inJSON, frames: json.Framer.NewFrameWriter,
		encoder: serializer.NewCodecFactory(custom).EncoderForVersion(inJSON, schema.GroupVersion(gatewayv1.GroupVersion)),
	}
}()

// event returns one event in encoded form.
func (c *codec) event(kind watch.EventType, o Object) ([]byte, error) {
	var object, frame bytes.Buffer
	if err := c.encoder.Encode(o, &object); err != nil {
		return nil, err
	}
	e := &metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: object.Bytes()}}
	err := c.raw.Encode(e, c.frames(&frame))
	return frame.Bytes(), err
}
