package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// checkPlain fails if readPlain reads a document that readYAML does not, or another one.
func checkPlain(t *testing.T, text string) (read bool) {
	t.Helper()
	const line = 7
	plain, ok := readPlain([]byte(text), line)
	if !ok {
		return false
	}
	full, ok := readYAML([]byte(text), line)
	if !ok || full.err != nil {
		t.Fatalf("readPlain(%q) = %s, want what readYAML says: ok %t, error %v", text, plain.json, ok, full.err)
	}
	if got, want := valueOfJSON(t, plain.json), valueOfJSON(t, full.json); !reflect.DeepEqual(got, want) {
		t.Fatalf("readPlain(%q) = %s, want %s", text, plain.json, full.json)
	}
	if plain.head != full.head || plain.line != full.line {
		t.Fatalf("readPlain(%q) has head %v and line %d, want %v and %d", text, plain.head, plain.line, full.head, full.line)
	}
	for i := range plain.items {
		at := path{"items", fmt.Sprintf("[%d]", i)}
		if got, want := plain.lineOf(at), full.lineOf(at); got != want {
			t.Fatalf("readPlain(%q): %v is in line %d, want %d", text, at, got, want)
		}
	}
	if plain.tree != nil {
		t.Fatalf("readPlain(%q): lines of items needed a tree", text)
	}
	return true
}

func valueOfJSON(t *testing.T, text []byte) (value any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return value
}

// TestPlainAgainstLibrary reads random documents.
func TestPlainAgainstLibrary(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	pieces := []string{
		"a:", "b: c", "- d", "- e: f", "- - g", "-", "items:", "- apiVersion: v1", "kind: Pod", "apiVersion: v1",
		"metadata:", "name: web", "namespace: shop", "name: 12", "Kind: x", "x: |", "y: |-", "- |", "- z: |", "text: more",
		"h: {}", "i: []", "j: [k]", `l: "m"`, `n: "o`, `p: "q\n"`, "r: 's'", "t: 'u''v'", "# comment", "w: x # y", "x: y#z",
		"n: 1", "n: -1", "n: 01", "n: 0x1F", "n: 1e3", "n: 1.5", "n: .5", "n: 1_000", "n: 10.0.0.1", "n: 100m", "n: 5d4f8c7b9",
		"n: 2024-01-02", "n: 2024-01-02T03:04:05Z", "n: 12:30:45", "n: --flag=x", "n: -x", "n: -", "n: - x", "n: ~", "n: null",
		"n: True", "n: yes", "y: on", "null: x", "true: y", "n: Null", "1: x", "n: nan", "n: inf", "n: .nan", "n: a: b", "n: a:",
		"app.kubernetes.io/name: web", "f:spec:", "<<: x", "n: *a", "n: &a b", "n: !!str 1", "n: <b>&", `n: a"b\c`, "? x", "%", "",
		"   ", "n: 123456789012345678901234567890", "n: 0", "n: -0", "n: 0b1", "n: -0o7", "n: /x", "n: $(X)", "n: (x", "n:x", "n :x",
		"---", "--- x", "...", "n: 99999999999999999999", "n: 1e999", "n: -.inf", "n: |x", "n: >", "n: {a: b}", "n: [a, b]",
		"n: {a: [b, 1], c: {d: 'e'}} # f", "- {a: b}", "- [a]", "n: [a,]", "n: {a: b, a: c}", "n: {a}", "n: {a: }", "n: [a: b]",
		"n: [a b, c:d]", "n: {a:b}", "n: [a #b]", `n: ["a", 'b']`, "n: [[], {}]", "n: [ a ]", "n: { a: b }", "n: [-1, - x]",
		"n: {a: b} c", "n: [a]b", "n: [a:]", "n: {a: b:}", "n: [,]", "n: [a?b]", "n: [a ?b]", "n: [a?]", "n: {a: b?}", "n: a?", "n: a ?b", "metadata: {name: x, namespace: y}", "metadata: {Name: x}", "n: a  ", "\tn: a", "n: é",
	}
	read := 0
	const documents = 200_000
	for range documents {
		var b strings.Builder
		if rng.IntN(4) == 0 {
			b.WriteString("---\n")
		}
		indent := 0
		for range 1 + rng.IntN(6) {
			b.WriteString(strings.Repeat(" ", indent) + pieces[rng.IntN(len(pieces))] + "\n")
			indent = max(0, indent+2*(rng.IntN(3)-1)+rng.IntN(8)/7)
		}
		// Only the first line of a document can be a separator.
		first := splitYAML([]byte(strings.TrimSuffix(b.String(), strings.Repeat("\n", rng.IntN(2)))))
		if checkPlain(t, string(first[len(first)-1])) {
			read++
		}
	}
	if read < documents/50 {
		t.Errorf("%d of %d documents were read, which says little", read, documents)
	}
	t.Logf("%d of %d documents were read", read, documents)
}

// TestPlainReadsManifests reads the examples, which are written as people write.
func TestPlainReadsManifests(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../examples/*/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	read, all := 0, 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, chunk := range splitYAML(text) {
			if all++; checkPlain(t, string(chunk)) {
				read++
			}
		}
	}
	t.Logf("%d of %d documents were read", read, all)
	if read < all/2 {
		t.Errorf("%d of %d documents of the examples were read, the others by the library", read, all)
	}
}

func FuzzPlain(f *testing.F) {
	f.Add("apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\nspec:\n  containers:\n  - name: b\n    args: |\n      c\n")
	f.Add("kind: List\nitems:\n- a: {}\n- b: []\n# c\n- d: 'e'\n")
	f.Fuzz(func(t *testing.T, text string) {
		chunks := splitYAML([]byte(text))
		checkPlain(t, string(chunks[len(chunks)-1]))
	})
}
