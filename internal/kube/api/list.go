package api

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	strictjson "sigs.k8s.io/json"

	"portolan.dev/portolan/internal/cluster"
)

// list is a list of converted objects. To the Reflector it is a list of the API.
type list struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []listed
}

// listed is one of them.
type listed struct {
	key  cluster.Key
	item *item // to be put into the Store by Replace; nil when it was put already
}

// DeepCopyObject implements runtime.Object.
func (l *list) DeepCopyObject() runtime.Object {
	c := *l
	return &c
}

// DeepCopyObject implements runtime.Object.
func (l *listed) DeepCopyObject() runtime.Object {
	c := *l
	return &c
}

// GetObjectKind returns none: the reading has one kind.
func (l *listed) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// list reads all objects and converts each as it arrives, so that they are never
// in memory all at once.
func (r *reading) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	// A server that stopped in the middle of a list must not hold it up.
	asking, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(r.source.cfg.Silence, func() { cancel(errUnanswered) })
	defer late.Stop()
	made, err := r.readAll(asking, options, func() {
		r.heard()
		late.Reset(r.source.cfg.Silence)
	})
	switch {
	case err == nil:
		r.heard()
		return made, nil
	case errors.Is(context.Cause(asking), errUnanswered):
		err = r.unanswered()
	case utilnet.IsProbableEOF(err) || utilnet.IsTimeout(err) || errors.Is(err, io.ErrUnexpectedEOF):
		err = errHungUp
	}
	if r.failed(ctx, err) {
		// That is no reason to ask all the time.
		if ended := sleep(ctx, r.source.cfg.AbsentPause); ended != nil {
			return nil, ended
		}
	}
	return nil, err
}

// readAll requests a list and reads it. It calls progress from time to time.
func (r *reading) readAll(ctx context.Context, options metav1.ListOptions, progress func()) (*list, error) {
	options.Limit, options.Continue = 0, ""
	if options.ResourceVersion == "0" {
		// The Reflector accepts any version in the server's cache. It may be older
		// than a snapshot, and names that it lacks would be denied.
		options.ResourceVersion = ""
	}
	body, err := r.source.clients.request(r, options).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	progress()
	in := &protobufReader{Reader: bufio.NewReaderSize(body, 32<<10)}
	if magic, err := in.Peek(len(protobufMagic)); err != nil || string(magic) != protobufMagic {
		return r.readJSON(in)
	}
	return r.readProtobuf(in, progress)
}

// readJSON reads a list from a server without protobuf, or of a custom resource, all at once.
func (r *reading) readJSON(in io.Reader) (*list, error) {
	text, err := io.ReadAll(in)
	if err != nil {
		return nil, err
	}
	var decoded struct {
		metav1.TypeMeta `json:",inline"`
		metav1.ListMeta `json:"metadata"`
		Items           []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(text, &decoded); err != nil {
		return nil, err
	}
	if !strings.HasSuffix(decoded.Kind, "List") {
		return nil, fmt.Errorf(
			"%s: the kind of the answer is %q, and not a list",
			r.resource.Resource,
			decoded.Kind,
		)
	}
	made := &list{ListMeta: metav1.ListMeta{ResourceVersion: decoded.ResourceVersion}}
	items := make([]item, 0, len(decoded.Items))
	for _, text := range decoded.Items {
		it, err := r.decodeJSON(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.resource.Resource, err)
		}
		items = append(items, it)
	}
	r.take(made, items)
	return made, nil
}

// decodeJSON decodes an object. If it does not have the types of the API, the item has what can be
// read if the kind fails closed, and is refused otherwise. Without a name it is an error.
func (r *reading) decodeJSON(text []byte) (item, error) {
	r.source.cfg.Between()
	object := r.resource.New()
	err := strictjson.UnmarshalCaseSensitivePreserveInts(text, object)
	if err == nil {
		return r.convert(object), nil
	}
	return r.undecodable(err, text, func(o any) error { return json.Unmarshal(text, o) })
}

// undecodable returns the item for an object that can't be decoded because of err. text is its JSON,
// if it is that; decode decodes its metadata.
func (r *reading) undecodable(err error, text []byte, decode func(any) error) (item, error) {
	var known metav1.PartialObjectMetadata
	if bad := decode(&known); known.Name == "" {
		return item{}, errors.Join(err, bad)
	}
	it := item{key: cluster.Key{Namespace: known.Namespace, Name: known.Name}, err: err}
	if r.resource.Salvage == nil {
		return it, nil
	}
	if text == nil {
		var encodeErr error
		key := metav1.ObjectMeta{Namespace: known.Namespace, Name: known.Name, Annotations: known.Annotations}
		if text, encodeErr = json.Marshal(map[string]any{"metadata": key}); encodeErr != nil {
			return item{}, encodeErr
		}
	}
	salvaged := r.convert(r.resource.Salvage(text))
	if salvaged.err != nil {
		err = fmt.Errorf("%w; %w", err, salvaged.err)
	}
	salvaged.err = err
	return salvaged, nil
}

// take adds items to a list. While their kind is loading it puts them into the
// Store at once: no consumer sees them until the kind is loaded. Later Replace
// puts all in one transaction, as a part of a list is inconsistent: an endpoint
// may have moved from one slice to another.
func (r *reading) take(made *list, items []item) {
	r.update(func(tx *cluster.Tx) {
		loaded := tx.Loaded(r.resource.Model)
		for i := range items {
			l := listed{key: items[i].key}
			if loaded {
				later := items[i]
				l.item = &later
			} else {
				r.put(tx, items[i])
			}
			made.Items = append(made.Items, l)
		}
	})
}

// protobufMagic begins what an API server sends as protobuf: a message of type
// Unknown, whose field raw holds the object (Kubernetes, "API concepts",
// "Kubernetes Protobuf encoding").
const protobufMagic = "k8s\x00"

// Fields of Unknown, of its typeMeta, and of every list.
const (
	fieldTypeMeta = 1
	fieldRaw      = 2

	fieldKind = 2

	fieldMetadata = 1
	fieldItems    = 2
)

// maxItem is the longest object that is read, in octets. API servers reject far
// shorter ones.
const maxItem = 64 << 20

// atOnce is how many objects of a list are put in one transaction.
const atOnce = 256

// readProtobuf reads a list item by item.
func (r *reading) readProtobuf(in *protobufReader, progress func()) (*list, error) {
	if _, err := in.Discard(len(protobufMagic)); err != nil {
		return nil, err
	}
	made := new(list)
	object := r.resource.New() // for one after the other
	items := make([]item, 0, atOnce)
	inList, left := false, 0 // octets of the list
	for {
		before := in.taken
		field, length, err := in.field()
		switch {
		case errors.Is(err, io.EOF) && inList && left <= 0:
			r.take(made, items)
			return made, nil
		case errors.Is(err, io.EOF):
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err
		case !inList && field == fieldRaw:
			inList, left = true, length
			continue
		}
		value, err := in.value(length)
		if err != nil {
			return nil, err
		}
		within := inList && left > 0 // what follows is of Unknown again
		left -= in.taken - before
		switch {
		case within && field == fieldMetadata:
			err = made.ListMeta.Unmarshal(value)
		case within && field == fieldItems:
			r.resource.empty(object)
			if value, err = r.kept.cut(value); err == nil {
				err = unmarshalInto(value)(object)
			}
			var it item
			if err == nil {
				it = r.convert(object)
			} else {
				it, err = r.undecodable(err, nil, unmarshalInto(value))
			}
			items = append(items, it)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.resource.Resource, err)
		}
		if len(items) == atOnce {
			progress()
			r.take(made, items)
			items = items[:0]
		}
	}
}

// unmarshalInto returns a function that decodes protobuf into a type of the API.
func unmarshalInto(value []byte) func(any) error {
	return func(o any) error { return o.(interface{ Unmarshal([]byte) error }).Unmarshal(value) }
}

// protobufReader reads the fields of a message. All fields of lists are
// length-delimited (wire type 2).
type protobufReader struct {
	*bufio.Reader
	buf   []byte
	taken int // octets read by field and value
}

// ReadByte implements io.ByteReader.
func (p *protobufReader) ReadByte() (byte, error) {
	b, err := p.Reader.ReadByte()
	if err == nil {
		p.taken++
	}
	return b, err
}

var errWireType = errors.New("not a list in protobuf: a field that has no length")

// field reads the number of the next field and the length of its value.
func (p *protobufReader) field() (number, length int, err error) {
	const wireTypeBits, lengthDelimited = 3, 2
	tag, err := binary.ReadUvarint(p)
	if err != nil {
		return 0, 0, err
	}
	if tag&(1<<wireTypeBits-1) != lengthDelimited {
		return 0, 0, errWireType
	}
	n, err := binary.ReadUvarint(p)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return int(tag >> wireTypeBits), int(n), err
}

// value reads a value. It is valid until the next call.
func (p *protobufReader) value(length int) ([]byte, error) {
	if length < 0 || length > maxItem {
		return nil, fmt.Errorf("an object of %d octets; at most %d are read", length, maxItem)
	}
	if cap(p.buf) < length {
		p.buf = make([]byte, length)
	}
	p.buf = p.buf[:length]
	n, err := io.ReadFull(p, p.buf)
	p.taken += n
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return p.buf, err
}
