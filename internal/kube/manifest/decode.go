package manifest

//lint:file-ignore SA1019 legacy Endpoints, deprecated as they are, are mirrored

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	strictjson "sigs.k8s.io/json"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/kube/object"
	"portolan.dev/portolan/internal/support/parallel"
	"portolan.dev/portolan/internal/support/suggest"
)

// Problem is an error or a warning about a manifest.
type Problem struct { //nolint:errname // it may be a warning
	File string
	Line int // from 1
	// Kind is that of the object at fault in the API; empty when unknown, as in a document that is no YAML.
	Kind string
	// Object is kind and key; empty when unknown.
	Object string
	// Field is the path of the field at fault; empty when it is no field.
	Field string
	Err   error
	// Rejected: the document is ignored, and its last good version stays. Otherwise
	// the problem is a warning.
	Rejected bool
	// Closed: it is rejected, and its kind fails closed (object.Kind): what can be read
	// of it is used, or its last good version, and what is invalid lets nothing through.
	Closed bool
}

// Error returns the problem in one line: file and line, object, field, reason.
func (p Problem) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d: ", p.File, p.Line)
	if p.Object != "" {
		fmt.Fprintf(&b, "%s: ", p.Object)
	}
	if p.Field != "" {
		fmt.Fprintf(&b, "%s: ", p.Field)
	}
	b.WriteString(strings.ReplaceAll(p.Err.Error(), "\n", " "))
	return b.String()
}

// Unwrap returns Err.
func (p Problem) Unwrap() error { return p.Err }

// kindEndpoints is the legacy kind, which the model does not have: see mirrored.
const kindEndpoints = "Endpoints"

// identity is the kind and key of a declared object.
type identity struct {
	kind string
	key  cluster.Key
}

// String returns kind and key.
func (id identity) String() string { return strings.ToLower(id.kind) + " " + id.key.String() }

// entry is a declared object.
type entry struct {
	id    identity
	file  string
	line  int
	value any // a cluster.Object or *mirrored
	// doc is the document, path the object's place in it, and json the object; nil
	// unless the depth is allWithPlaces.
	doc  *document
	path path
	json []byte
}

// lineOf returns the line of a field, or of the nearest enclosing one that is
// present.
func (o *entry) lineOf(field string) int {
	if o.doc == nil || field == "" {
		return o.line
	}
	return o.line + o.doc.lineOf(slices.Concat(o.path, parsePath(field))) - o.doc.lineOf(o.path)
}

// annotated is the annotations of an object and of its Pod template.
type annotated struct {
	Metadata struct {
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Template    *annotated `json:"template"`
		JobTemplate *annotated `json:"jobTemplate"`
	} `json:"spec"`
}

// annotations implements Source.Annotations.
func (o *entry) annotations(name string) (values []string) {
	var a annotated
	if !bytes.Contains(o.json, []byte(name)) || json.Unmarshal(o.json, &a) != nil {
		return nil
	}
	for at := &a; at != nil; at = cmp.Or(at.Spec.Template, at.Spec.JobTemplate) {
		if value, ok := at.Metadata.Annotations[name]; ok {
			values = append(values, value)
		}
	}
	return values
}

// mirrored is legacy Endpoints: the slices that mirror them, none if they opt out.
type mirrored struct{ slices []*cluster.EndpointSlice }

// decoded is the contents of a file.
type decoded struct {
	objects  []entry
	problems []Problem
	// broken are the objects whose documents were rejected; unreadable: there are
	// rejected documents that do not identify their object.
	broken     map[identity]bool
	unreadable bool
	// closed are those of broken that fail closed, for the case that there is no last good version.
	closed     map[identity]entry
	passedOver int // documents of other kinds
	notObjects int // documents that are no Kubernetes objects
	template   int // the line of the first template that is no valid YAML; 0 for none
	// namespaces are those of documents of other kinds.
	namespaces map[string]bool
	chunks     chunks
}

// chunks are the documents of a YAML file that had no problem, by the hash of
// their text, with line numbers relative to the document.
type chunks map[[sha256.Size]byte]*decoded

// depth is how much is read of manifests.
type depth uint8

const (
	kindsOfNames  depth = iota // cluster.KindsOfNames
	allKinds                   // every kind; documents that are no Kubernetes objects are passed over
	allWithPlaces              // and where each object is declared
)

// decodeFile decodes all documents of a file, except for those in known.
func decodeFile(file string, data []byte, known chunks, depth depth) *decoded {
	d := newFileDecoder(file, depth)
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if isJSON(data) {
		for _, doc := range splitJSON(data) {
			d.document(&doc)
		}
	} else {
		d.chunks = make(chunks)
		d.addChunks(splitYAML(data), known)
	}
	if d.template > 0 {
		d.problems = append(d.problems, Problem{File: file, Line: d.template, Err: errTemplate})
	}
	// YAML breaks lines at more than line feeds; editors mostly do not.
	lines := 1 + bytes.Count(data, []byte("\n"))
	for i := range d.problems {
		d.problems[i].Line = min(d.problems[i].Line, lines)
	}
	for i := range d.objects {
		d.objects[i].line = min(d.objects[i].line, lines)
	}
	return &d.decoded
}

func newFileDecoder(file string, depth depth) *fileDecoder {
	return &fileDecoder{
		file:  file,
		depth: depth,
		decoded: decoded{
			broken: make(map[identity]bool), closed: make(map[identity]entry), namespaces: make(map[string]bool),
		},
	}
}

// chunk is the text of one document of a YAML file.
type chunk struct {
	text []byte
	line int // its first
	sum  [sha256.Size]byte
	*decoded
	// movable: it had no problem, and its line numbers are relative.
	movable bool
}

// addChunks adds the documents of a file, decoded on all processors.
func (d *fileDecoder) addChunks(texts [][]byte, known chunks) {
	all, line := make([]chunk, len(texts)), 1
	for i, text := range texts {
		all[i] = chunk{text: text, line: line}
		line += bytes.Count(text, []byte("\n"))
	}
	parallel.Each(len(all), func(i int) { d.decodeChunk(&all[i], known) })
	for i := range all {
		switch c := &all[i]; {
		case c.decoded == nil: // nothing but comments
		case c.movable:
			d.chunks[c.sum] = c.decoded
			d.add(c.decoded, c.line-1)
		default:
			d.add(c.decoded, 0)
		}
	}
}

// decodeChunk decodes a document unless it is known. It does not change d.
func (d *fileDecoder) decodeChunk(c *chunk, known chunks) {
	c.sum = sha256.Sum256(c.text)
	if made := known[c.sum]; made != nil {
		c.decoded, c.movable = made, true
		return
	}
	one := newFileDecoder(d.file, d.depth)
	doc, plain := readPlain(c.text, c.line)
	if plain {
		one.document(&doc)
	}
	if !plain || len(one.problems) > 0 { // what is wrong with a document is said by the YAML library's reading of it
		var ok bool
		if doc, ok = readYAML(c.text, c.line); !ok {
			return
		}
		one = newFileDecoder(d.file, d.depth)
		one.document(&doc)
	}
	if d.depth >= allKinds && bytes.Contains(c.text, []byte("{{")) && action.Match(c.text) {
		one.judgeTemplate(&doc, c.text, c.line)
	}
	c.decoded, c.movable = &one.decoded, len(one.problems) == 0 && one.template == 0
	if c.movable {
		for i := range one.objects {
			one.objects[i].line -= c.line - 1
		}
	}
}

// add adds a part of the file, whose objects are some lines further down.
func (d *decoded) add(part *decoded, lines int) {
	for _, o := range part.objects {
		o.line += lines
		d.objects = append(d.objects, o)
	}
	d.problems = append(d.problems, part.problems...)
	maps.Copy(d.broken, part.broken)
	maps.Copy(d.closed, part.closed)
	maps.Copy(d.namespaces, part.namespaces)
	d.unreadable = d.unreadable || part.unreadable
	d.passedOver += part.passedOver
	d.notObjects += part.notObjects
	if d.template == 0 {
		d.template = part.template
	}
}

// action is an action of a Go template, such as Helm's.
var action = regexp.MustCompile(`\{\{.*\}\}`)

var errTemplate = errors.New("looks like a Helm template, and can't be read as it is: render it first (helm template)")

// judgeTemplate treats a document with template actions as a template if it is
// invalid because of them, and drops its problems then.
func (d *fileDecoder) judgeTemplate(doc *document, text []byte, line int) {
	if slices.ContainsFunc(d.problems, func(p Problem) bool {
		return p.Rejected && (doc.err != nil || strings.Contains(p.Err.Error(), "{{"))
	}) {
		d.template = line + bytes.Count(text[:action.FindIndex(text)[0]], []byte("\n"))
		d.problems, d.objects, d.closed = nil, nil, nil
	}
}

type fileDecoder struct {
	file  string
	depth depth
	decoded
}

// decoder is how objects of a kind are decoded.
type decoder struct {
	newAPI func() any
	// convert turns the API's type into the model's, or into *mirrored.
	convert func(any) (any, field.ErrorList)
	forDNS  bool                         // one of cluster.KindsOfNames, or what slices are mirrored from
	salvage func(json []byte) object.API // as in object.Kind
}

// decoders are those of all kinds, by apiVersion/kind.
var decoders = func() map[string]*decoder {
	all := map[string]*decoder{"v1/" + kindEndpoints: {newAPI: newEndpoints, convert: mirrorEndpoints, forDNS: true}}
	for _, k := range object.Kinds {
		all[k.Group.String()+"/"+k.Model.String()] = &decoder{
			newAPI:  func() any { return k.New() },
			convert: func(api any) (any, field.ErrorList) { return valueOf(k.Decode(api.(object.API))) },
			forDNS:  slices.Contains(cluster.KindsOfNames(), k.Model),
			salvage: k.Salvage,
		}
	}
	return all
}()

// valueOf returns an object of the model as an entry's value, nil for none.
func valueOf(o cluster.Object, errs field.ErrorList) (any, field.ErrorList) {
	if o == nil {
		return nil, errs
	}
	return o, errs
}

// decoder returns that of a kind, nil for a kind that is not read.
func (d *fileDecoder) decoder(apiVersion, kind string) *decoder {
	if made := decoders[apiVersion+"/"+kind]; made != nil && (made.forDNS || d.depth >= allKinds) {
		return made
	}
	return nil
}

func newEndpoints() any { return new(corev1.Endpoints) }

// mirrorEndpoints converts legacy Endpoints.
func mirrorEndpoints(api any) (any, field.ErrorList) {
	e := api.(*corev1.Endpoints)
	slices, errs := object.Endpoints(e)
	if !object.Mirrors(e) {
		slices = nil
	}
	return &mirrored{slices}, errs
}

// item is one object of a document: all of it, or one of a List's.
type item struct {
	doc  *document
	path path // of the object in the document: none, or items[N]
	json []byte
	head head
}

func (d *fileDecoder) document(doc *document) {
	if doc.err != nil {
		d.rejectType(&item{doc: doc, json: doc.json, head: doc.head}, doc.err)
		return
	}
	if !d.isList(doc.head) {
		d.item(&item{doc: doc, json: doc.json, head: doc.head})
		return
	}
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(doc.json, &list); err != nil {
		d.reject(&item{doc: doc}, path{"items"}, errors.New("must be a list of objects"))
		return
	}
	for i, raw := range list.Items {
		it := &item{doc: doc, path: path{"items", fmt.Sprintf("[%d]", i)}, json: raw}
		// Items of a typed list need not repeat what they are.
		it.head.APIVersion, it.head.Kind = doc.head.APIVersion, strings.TrimSuffix(doc.head.Kind, "List")
		if err := json.Unmarshal(raw, &it.head); err != nil {
			d.reject(it, nil, err)
			continue
		}
		d.item(it)
	}
}

// isList reports whether a document is a list of objects: List itself, or that of
// a known kind, such as ServiceList.
func (d *fileDecoder) isList(h head) bool {
	element, ok := strings.CutSuffix(h.Kind, "List")
	return ok && (d.decoder(h.APIVersion, element) != nil || h.APIVersion == "v1" && element == "")
}

func (d *fileDecoder) item(it *item) {
	if d.depth >= allKinds && (it.head.APIVersion == "" || it.head.Kind == "") && it.head.Metadata == (headMeta{}) {
		d.notObjects++
		return
	}
	for _, field := range []struct{ key, value string }{{"apiVersion", it.head.APIVersion}, {"kind", it.head.Kind}} {
		if field.value == "" {
			d.reject(it, path{field.key}, errors.New("missing; each document is one Kubernetes object"))
			return
		}
	}
	decode := d.decoder(it.head.APIVersion, it.head.Kind)
	if decode == nil {
		d.passedOver++
		if d.oddVersion(it.head) {
			d.problems = append(d.problems,
				d.problem(it, path{"apiVersion"}, fmt.Errorf("%s is not known for this kind, passed over", it.head.APIVersion)))
		}
		meant := d.meantKind(it.head)
		switch {
		case d.depth >= allKinds && isForeignPolicy(it.head):
			d.problems = append(d.problems, d.problem(it, path{"kind"},
				errors.New("passed over: network policies of this kind are not enforced")))
		case meant != "":
			d.problems = append(d.problems, d.problem(it, path{"kind"},
				fmt.Errorf("%s is not known for %s, passed over; did you mean %s", it.head.Kind, it.head.APIVersion, meant)))
		}
		if ns := it.head.Metadata.Namespace; len(validation.IsDNS1123Label(ns)) == 0 {
			d.namespaces[ns] = true
		}
		return
	}
	d.decode(it, decode)
}

// known returns the kinds that are read, as apiVersion/kind, sorted.
func (d *fileDecoder) known() (names []string) {
	for name, made := range decoders {
		if made.forDNS || d.depth >= allKinds {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// isForeignPolicy reports whether h is of a kind of network policies that only other programs enforce.
func isForeignPolicy(h head) bool {
	switch group, _, _ := strings.Cut(h.APIVersion, "/"); group {
	case "policy.networking.k8s.io":
		return h.Kind == "AdminNetworkPolicy" || h.Kind == "BaselineAdminNetworkPolicy"
	case "cilium.io", "crd.projectcalico.org", "projectcalico.org":
		return strings.HasSuffix(h.Kind, "NetworkPolicy")
	}
	return false
}

// oddVersion reports whether h is of a known kind in an unknown version of its API
// group: a typo, or an old object.
func (d *fileDecoder) oddVersion(h head) bool {
	group, _, grouped := strings.Cut(h.APIVersion, "/")
	for _, name := range d.known() {
		i := strings.LastIndex(name, "/")
		knownGroup, _, knownGrouped := strings.Cut(name[:i], "/")
		if name[i+1:] == h.Kind && grouped == knownGrouped && (!grouped || group == knownGroup) {
			return true
		}
	}
	return false
}

// meantKind returns the kind of the same apiVersion that was probably meant; empty
// if none is similar.
func (d *fileDecoder) meantKind(h head) string {
	var same []string
	for _, name := range d.known() {
		if kind, ok := strings.CutPrefix(name, h.APIVersion+"/"); ok && !strings.Contains(kind, "/") {
			same = append(same, kind)
		}
	}
	return suggest.Closest(h.Kind, same)
}

// identity returns kind and key of the item; ok is false when it has none.
func (it *item) identity() (id identity, ok bool) {
	id = identity{it.head.Kind, cluster.Key{Namespace: it.head.Metadata.Namespace, Name: it.head.Metadata.Name}}
	if k, ok := cluster.KindOf(id.kind); ok && !k.Namespaced() {
		id.key.Namespace = ""
	} else if id.key.Namespace == "" {
		id.key.Namespace = corev1.NamespaceDefault
	}
	return id, id.kind != "" && id.key.Name != ""
}

// decode decodes an item strictly into the API's type, and that into the model's.
func (d *fileDecoder) decode(it *item, of *decoder) {
	api := of.newAPI()
	strict, err := strictjson.UnmarshalStrict(it.json, api)
	if err != nil {
		d.rejectType(it, err)
		if o, ok := d.salvage(it, it.json); ok {
			d.objects = append(d.objects, o)
		}
		return
	}
	for _, s := range strict {
		if !d.strict(it, s) {
			return
		}
	}
	model, errs := of.convert(api)
	if len(errs) > 0 {
		err := errors.New(errs[0].ErrorBody())
		if more := len(errs) - 1; more > 0 {
			err = fmt.Errorf("%w (and %d more in this object)", err, more)
		}
		d.reject(it, parsePath(errs[0].Field), err)
	}
	if model != nil {
		d.objects = append(d.objects, d.entry(it, model))
	}
}

// entry returns the declaration of an item whose object is decoded.
func (d *fileDecoder) entry(it *item, model any) entry {
	id, _ := it.identity()
	o := entry{id: id, file: d.file, line: it.doc.line, value: model}
	if it.doc.err == nil {
		o.line = it.doc.lineOf(it.path)
	}
	if d.depth == allWithPlaces && it.doc.err == nil {
		o.doc, o.path, o.json = it.doc, it.path, it.json
	}
	return o
}

// salvage decodes what can be read of JSON, if the item is of a kind that fails closed.
func (d *fileDecoder) salvage(it *item, json []byte) (o entry, ok bool) {
	of := d.decoder(it.head.APIVersion, it.head.Kind)
	if of == nil || of.salvage == nil {
		return entry{}, false
	}
	model, _ := of.convert(of.salvage(json)) // what is wrong with the item was said
	return d.entry(it, model), model != nil
}

// rejectType rejects an item with a value of the wrong type.
func (d *fileDecoder) rejectType(it *item, err error) {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		d.reject(it, pathAt(it.json, wrong.Offset), fmt.Errorf("wrong type: %s where %s is wanted", wrong.Value, wrong.Type))
		return
	}
	d.reject(it, nil, err)
}

// strict handles an error of strict decoding: it warns about an unknown field,
// rejects the item for a duplicate one, and reports whether to go on.
func (d *fileDecoder) strict(it *item, err error) (goOn bool) {
	what, quoted, _ := strings.Cut(err.Error(), ` field "`)
	at := parsePath(strings.TrimSuffix(quoted, `"`))
	if what != "unknown" {
		d.reject(it, at, errors.New("key given twice"))
		return false
	}
	p := d.problem(it, at, errors.New("unknown field, passed over"))
	d.problems = append(d.problems, p)
	return true
}

func (d *fileDecoder) reject(it *item, at path, err error) {
	p := d.problem(it, at, err)
	p.Rejected = true
	if id, ok := it.identity(); ok {
		d.broken[id] = true
		var o entry
		if o, p.Closed = d.salvage(it, it.head.json()); p.Closed {
			d.closed[id] = o
		}
	} else {
		d.unreadable = true
	}
	d.problems = append(d.problems, p)
}

func (d *fileDecoder) problem(it *item, at path, err error) Problem {
	p := Problem{File: d.file, Line: it.doc.line, Kind: it.head.Kind, Field: at.String(), Err: err}
	if id, ok := it.identity(); ok {
		p.Object = id.String()
	}
	if it.doc.err == nil {
		p.Line = it.doc.lineOf(slices.Concat(it.path, at))
	}
	return p
}
