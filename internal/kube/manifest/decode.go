package manifest

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

// Problem is something wrong in a manifest.
type Problem struct {
	File string
	Line int // from 1
	// Object is kind and key, as far as they are known.
	Object string
	// Field is the path of the field, where one is to blame.
	Field string
	Err   error
	// Rejected says that the document does not count, and its last good
	// version stays; otherwise it is a warning.
	Rejected bool
}

// Error is the problem in one line: where, what, why.
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

// Unwrap gives what is wrong.
func (p Problem) Unwrap() error { return p.Err }

// kindEndpoints is the legacy kind, which the model does not have: see mirrored.
const kindEndpoints = "Endpoints"

// identity tells objects apart.
type identity struct {
	kind string
	key  cluster.Key
}

// String is kind and key.
func (id identity) String() string { return strings.ToLower(id.kind) + " " + id.key.String() }

// entry is an object as the model has it: a pointer to one of cluster's
// types, or *mirrored.
type entry struct {
	id    identity
	file  string
	line  int
	value any
	// doc is what it was read from, path where it stands there, and json itself;
	// nil when nobody will ask where its fields stand.
	doc  *document
	path path
	json []byte
}

// lineOf is the line of a field, or of the nearest one around it that is there.
func (o *entry) lineOf(field string) int {
	if o.doc == nil || field == "" {
		return o.line
	}
	return o.line + o.doc.lineOf(slices.Concat(o.path, parsePath(field))) - o.doc.lineOf(o.path)
}

// annotated is what has annotations: an object, and the templates of Pods.
type annotated struct {
	Metadata struct {
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Template    *annotated `json:"template"`
		JobTemplate *annotated `json:"jobTemplate"`
	} `json:"spec"`
}

// annotations are Source.Annotations'.
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

// mirrored is legacy Endpoints: the slices that mirror them, if they may.
type mirrored struct{ slices []*cluster.EndpointSlice }

// decoded is what a file says.
type decoded struct {
	objects  []entry
	problems []Problem
	// broken are the objects whose documents were rejected; when unreadable
	// is set there are documents of which it is not known what they describe.
	broken     map[identity]bool
	unreadable bool
	passedOver int // documents of other kinds
	notObjects int // documents that are no Kubernetes objects
	template   int // the line of the first template that can't be read; 0 for none
	// namespaces are those that documents of other kinds live in.
	namespaces map[string]bool
	chunks     chunks
}

// chunks are the documents of a YAML file that had no problem, by the hash of
// their text, with lines counted from their own first.
type chunks map[[sha256.Size]byte]*decoded

// depth is how much of manifests is read.
type depth uint8

const (
	kindsOfNames  depth = iota // cluster.KindsOfNames
	allKinds                   // every kind; documents that are no Kubernetes objects are passed over
	allWithPlaces              // and where each object is declared
)

// decodeFile reads all documents of a file. Those that are in known need not be
// decoded again: a change costs what changed.
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
	return &fileDecoder{file: file, depth: depth, decoded: decoded{broken: make(map[identity]bool), namespaces: make(map[string]bool)}}
}

// chunk is the text of one document of a YAML file.
type chunk struct {
	text []byte
	line int // its first
	sum  [sha256.Size]byte
	*decoded
	// movable says that there was no problem: lines are counted from its own
	// first.
	movable bool
}

// addChunks takes in the documents of a file, decoded on all processors.
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

// decodeChunk decodes one, if it is not known. It does not change d.
func (d *fileDecoder) decodeChunk(c *chunk, known chunks) {
	c.sum = sha256.Sum256(c.text)
	if made := known[c.sum]; made != nil {
		c.decoded, c.movable = made, true
		return
	}
	doc, ok := readYAML(c.text, c.line)
	if !ok {
		return
	}
	one := newFileDecoder(d.file, d.depth)
	one.document(&doc)
	if d.depth >= allKinds && action.Match(c.text) {
		one.judgeTemplate(&doc, c.text, c.line)
	}
	c.decoded, c.movable = &one.decoded, len(one.problems) == 0 && one.template == 0
	if c.movable {
		for i := range one.objects {
			one.objects[i].line -= c.line - 1
		}
	}
}

// add adds what a part of the file says, its objects moved by some lines.
func (d *decoded) add(part *decoded, lines int) {
	for _, o := range part.objects {
		o.line += lines
		d.objects = append(d.objects, o)
	}
	d.problems = append(d.problems, part.problems...)
	maps.Copy(d.broken, part.broken)
	maps.Copy(d.namespaces, part.namespaces)
	d.unreadable = d.unreadable || part.unreadable
	d.passedOver += part.passedOver
	d.notObjects += part.notObjects
	if d.template == 0 {
		d.template = part.template
	}
}

// action is one of Go's templates, which Helm's are.
var action = regexp.MustCompile(`\{\{.*\}\}`)

var errTemplate = errors.New("looks like a Helm template, and can't be read as it is: render it first (helm template)")

// judgeTemplate takes a document of that text with actions for a template if it
// can't be read, or if an action stands where a value is wanted: then its
// problems are none.
func (d *fileDecoder) judgeTemplate(doc *document, text []byte, line int) {
	if slices.ContainsFunc(d.problems, func(p Problem) bool {
		return p.Rejected && (doc.err != nil || strings.Contains(p.Err.Error(), "{{"))
	}) {
		d.template = line + bytes.Count(text[:action.FindIndex(text)[0]], []byte("\n"))
		d.problems = nil
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
	forDNS  bool // one of cluster.KindsOfNames, or what slices are mirrored from
}

// decoders are those of all kinds, by apiVersion/kind.
var decoders = func() map[string]*decoder {
	all := map[string]*decoder{"v1/" + kindEndpoints: {newEndpoints, mirrorEndpoints, true}}
	for _, k := range object.Kinds {
		all[k.Group.String()+"/"+k.Model.String()] = &decoder{
			newAPI:  func() any { return k.New() },
			convert: func(api any) (any, field.ErrorList) { return k.Decode(api.(object.API)) },
			forDNS:  slices.Contains(cluster.KindsOfNames(), k.Model),
		}
	}
	return all
}()

// decoder returns that of a kind, nil for a kind that is not read.
func (d *fileDecoder) decoder(apiVersion, kind string) *decoder {
	if made := decoders[apiVersion+"/"+kind]; made != nil && (made.forDNS || d.depth >= allKinds) {
		return made
	}
	return nil
}

//lint:ignore SA1019 the deprecated kind is mirrored here
func newEndpoints() any { return new(corev1.Endpoints) }

// mirrorEndpoints converts legacy Endpoints.
//
//lint:ignore SA1019 the deprecated kind is mirrored here
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

// isList tells whether a document holds a list of objects: List itself, or one
// of a kind that is known, such as ServiceList.
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
			d.problems = append(d.problems, d.problem(it, path{"apiVersion"}, fmt.Errorf("%s is not known for this kind, passed over", it.head.APIVersion)))
		}
		if meant := d.meantKind(it.head); meant != "" {
			d.problems = append(d.problems, d.problem(it, path{"kind"}, fmt.Errorf("%s is not known for %s, passed over; did you mean %s", it.head.Kind, it.head.APIVersion, meant)))
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

// oddVersion tells whether h is of a kind of ours in a version of its API group
// that is not known: a slip, or an old object.
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

// meantKind is the kind of the same apiVersion that was perhaps meant; "" if
// none is like it.
func (d *fileDecoder) meantKind(h head) string {
	var same []string
	for _, name := range d.known() {
		if kind, ok := strings.CutPrefix(name, h.APIVersion+"/"); ok && !strings.Contains(kind, "/") {
			same = append(same, kind)
		}
	}
	return suggest.Closest(h.Kind, same)
}

// identity is what the item describes; ok is false when it does not say.
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
		return
	}
	for _, s := range strict {
		if !d.strict(it, s) {
			return
		}
	}
	model, errs := of.convert(api)
	if len(errs) > 0 {
		err := error(errors.New(errs[0].ErrorBody()))
		if more := len(errs) - 1; more > 0 {
			err = fmt.Errorf("%w (and %d more in this object)", err, more)
		}
		d.reject(it, parsePath(errs[0].Field), err)
		return
	}
	id, _ := it.identity()
	o := entry{id: id, file: d.file, line: it.doc.lineOf(it.path), value: model}
	if d.depth == allWithPlaces {
		o.doc, o.path, o.json = it.doc, it.path, it.json
	}
	d.objects = append(d.objects, o)
}

// rejectType rejects a document with a value of the wrong type.
func (d *fileDecoder) rejectType(it *item, err error) {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		d.reject(it, pathAt(it.json, wrong.Offset), fmt.Errorf("wrong type: %s where %s is wanted", wrong.Value, wrong.Type))
		return
	}
	d.reject(it, nil, err)
}

// strict deals with what strict decoding found: it warns of an unknown field,
// rejects for a duplicate one, and tells whether to go on.
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
	d.problems = append(d.problems, p)
	if id, ok := it.identity(); ok {
		d.broken[id] = true
		return
	}
	d.unreadable = true
}

func (d *fileDecoder) problem(it *item, at path, err error) Problem {
	p := Problem{File: d.file, Line: it.doc.line, Field: at.String(), Err: err}
	if id, ok := it.identity(); ok {
		p.Object = id.String()
	}
	if it.doc.err == nil {
		p.Line = it.doc.lineOf(slices.Concat(it.path, at))
	}
	return p
}
