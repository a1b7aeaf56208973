//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"portolan.dev/portolan/internal/cli"
	"portolan.dev/portolan/internal/kube/apitest"
	"portolan.dev/portolan/internal/pod/path"
)

// situations are in files that are readable without this code:
//
//	base.yaml            in the directory: objects of every situation
//	-- base.yaml --      objects instead of those
//	-- cluster.yaml --   more objects of the cluster
//	-- served.yaml --    what the server has instead of cluster.yaml; none is no server
//	-- config.yaml --    the configuration of the server and of the command
//	-- forbidden: command -- and -- forbidden: server --
//	                     a resource that the API refuses to list to one of them
//	-- lookups --        what is looked up, and the first sentence that explains it
//
// A lookup is the name, its type unless it is A and AAAA, the Pod and the resolver; below it
// are the expected first sentence, or found if there is nothing to explain, the beginning
// of its cure, the second sentence (then), and the first sentence with --live if that is
// another one, in which SERVER stands for the server that is asked.
//
//	> NAME [TYPE] from NAMESPACE/POD [by RESOLVER]
//	SENTENCE
//	cure: BEGINNING
//	then: SENTENCE
//	live: SENTENCE
const situations = "../../testdata/situations"

// leastSituations is the number of lookups that the table has at least.
const leastSituations = 60

// situation is a lookup with what explains it.
type situation struct {
	line                   int
	name, rrtype, from, by string
	why, cure, then, live  string
}

// cured returns the sentence that the cure is for: the expected one, or with --live if the
// name is found without.
func (s *situation) cured() string {
	if s.why == found && s.live != "" {
		return s.live
	}
	return s.why
}

// found is the outcome of a lookup with nothing to explain.
const found = "found"

// TestSituations checks that explain gives the true cause first, both from the cluster
// alone and with the answers of a server.
func TestSituations(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(situations, "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, file := range files {
		w := newSituationWorld(t, file)
		total += len(w.lookups)
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			w.run(t)
		})
	}
	if total < leastSituations {
		t.Errorf("%d situations, want at least %d", total, leastSituations)
	}
}

// situationWorld is a file of situations.
type situationWorld struct {
	file    string
	archive *txtar.Archive
	lookups []situation
}

func newSituationWorld(t *testing.T, file string) *situationWorld {
	t.Helper()
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	w := &situationWorld{file: file, archive: archive}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := w.section("lookups")
	first := strings.Count(string(text)[:strings.Index(string(text), "-- lookups --")], "\n") + 2
	if w.lookups, err = parseSituations(body, first); err != nil {
		t.Fatalf("%s:%v", file, err)
	}
	return w
}

// section returns a file of the archive, and reports whether it has it.
func (w *situationWorld) section(name string) (string, bool) {
	i := slices.IndexFunc(w.archive.Files, func(f txtar.File) bool { return f.Name == name })
	if i < 0 {
		return "", false
	}
	return string(w.archive.Files[i].Data), true
}

// parseSituations parses the section lookups, whose first line has the given number.
func parseSituations(text string, number int) (all []situation, err error) {
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		key, value, keyed := strings.Cut(line, ": ")
		switch last := len(all) - 1; {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "> "):
			s := situation{line: number}
			words := strings.Fields(line[2:])
			s.name = words[0]
			for i := 1; i < len(words); i++ {
				switch words[i] {
				case "from":
					i++
					s.from = words[i]
				case "by":
					i++
					s.by = words[i]
				default:
					s.rrtype = words[i]
				}
			}
			all = append(all, s)
		case last < 0:
			return nil, fmt.Errorf("%d: no lookup before it", number)
		case keyed && key == "cure":
			all[last].cure = value
		case keyed && key == "then":
			all[last].then = value
		case keyed && key == "live":
			all[last].live = value
		case all[last].why != "":
			return nil, fmt.Errorf("%d: a second sentence without a key", number)
		default:
			all[last].why = line
		}
		number++
	}
	return all, nil
}

func (w *situationWorld) run(t *testing.T) {
	t.Helper()
	base, own := w.section("base.yaml")
	if !own {
		text, err := os.ReadFile(filepath.Join(situations, "base.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		base = string(text)
	}
	more, _ := w.section("cluster.yaml")
	served, other := w.section("served.yaml")
	if !other {
		served = more
	}
	dir := t.TempDir()
	config, _ := w.section("config.yaml")
	configFile := filepath.Join(dir, "config.yaml")
	write(t, configFile, config)
	offline := append(w.source(t, "command", base+"---\n"+more), "--config", configFile)
	for i := range w.lookups {
		w.explain(t, &w.lookups[i], w.lookups[i].why, offline)
	}
	server := "127.0.0.1:1"
	if strings.TrimSpace(served) != "none" {
		args := append(w.source(t, "server", base+"---\n"+served), "--config", configFile, "--admin", anyPort, "--listen", anyPort)
		p := start(t, args...)
		p.await(patience, "kube-dns.kube-system.svc.cluster.local.", "10.96.0.10")
		server = p.addr
	}
	for i := range w.lookups {
		s := &w.lookups[i]
		want := s.why
		if s.live != "" {
			want = strings.ReplaceAll(s.live, "SERVER", server)
		}
		w.explain(t, s, want, slices.Concat(offline, []string{"--live", "--server", server}))
	}
}

// source returns the flags with which the command or the server reads the objects: as
// manifests, or from an API that refuses it a resource.
func (w *situationWorld) source(t *testing.T, reader, objects string) []string {
	t.Helper()
	resource, forbidden := w.section("forbidden: " + reader)
	if !forbidden {
		file := filepath.Join(t.TempDir(), reader+".yaml")
		write(t, file, objects)
		return []string{"--manifests", file}
	}
	api := apitest.New(t)
	for doc := range strings.SplitSeq(objects, "---\n") {
		if strings.TrimSpace(doc) == "" {
			continue
		}
		o, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(doc), nil, nil)
		if err != nil {
			t.Fatalf("%s: %v in\n%s", w.file, err, doc)
		}
		object, ok := o.(metav1.Object)
		if !ok {
			t.Fatalf("%s: %T is not an object", w.file, o)
		}
		api.Put(object)
	}
	api.Misbehave(apitest.Fault{Status: http.StatusForbidden, Resource: strings.TrimSpace(resource)})
	return []string{"--kubeconfig", api.Kubeconfig(t)}
}

// explain runs the command and compares the first sentence.
func (w *situationWorld) explain(t *testing.T, s *situation, want string, flags []string) {
	t.Helper()
	args := []string{"explain", s.name, "--from", s.from, "-o", "json"}
	if s.rrtype != "" {
		args = append(args, "--type", s.rrtype)
	}
	if s.by != "" {
		args = append(args, "--libc", s.by)
	}
	args = append(args, flags...)
	var stdout, stderr strings.Builder
	cli.Run(t.Context(), append([]string{"portolan"}, args...), &stdout, &stderr)
	var got path.Explanation
	if err := json.Unmarshal([]byte(stdout.String()), &got); err != nil || got.Name == nil {
		t.Errorf("%s:%d: %q: %v\n%s%s", w.file, s.line, args, err, stdout.String(), stderr.String())
		return
	}
	why, cure, then := got.Name.Outcome, "", ""
	causes := got.Step(path.Name).Diagnoses
	if len(causes) > 0 {
		why, cure = causes[0].Why, causes[0].Cure
	}
	if len(causes) > 1 {
		then = causes[1].Why
	}
	same := why == want
	if beginning, open := strings.CutSuffix(want, " ..."); open {
		same = strings.HasPrefix(why, beginning)
	}
	cured := want != s.cured() || strings.HasPrefix(cure, s.cure) && (s.then == "" || then == s.then)
	if !same || !cured {
		t.Errorf("%s:%d: %q\nwhy  %s\nwant %s\ncure %s\nwant %s\nthen %s\nwant %s", w.file, s.line, args, why, want, cure, s.cure,
			then, s.then)
	}
	w.lookUpCure(t, s, cure, args)
}

// lookUpCure checks that a name that the cure says to ask for resolves.
func (w *situationWorld) lookUpCure(t *testing.T, s *situation, cure string, args []string) {
	t.Helper()
	_, quoted, asks := strings.Cut(cure, `ask for "`)
	name, rest, _ := strings.Cut(quoted, `"`)
	if !asks || strings.Contains(rest, "does not resolve yet") {
		return
	}
	args = slices.Clone(args)
	args[1] = name
	var stdout, stderr strings.Builder
	cli.Run(t.Context(), append([]string{"portolan"}, args...), &stdout, &stderr)
	var again path.Explanation
	if err := json.Unmarshal([]byte(stdout.String()), &again); err != nil || again.Name == nil ||
		again.Name.Outcome != "found" && again.Name.Outcome != "blocked" {
		t.Errorf("%s:%d: %q: the cure is %s, and that is %s (%v)", w.file, s.line, args, cure, again.Outcome, err)
	}
}
