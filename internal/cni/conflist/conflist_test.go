package conflist

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"portolan.dev/portolan/internal/cni/plugin"
)

const socket = "/run/portolan/cni.sock"

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// directory makes a directory with these files.
func directory(tb testing.TB, files map[string]string) (dir string) {
	tb.Helper()
	dir = tb.TempDir()
	for name, text := range files {
		must(tb, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o640))
	}
	return dir
}

// contents returns the files of a directory.
func contents(tb testing.TB, dir string) map[string]string {
	tb.Helper()
	entries, err := os.ReadDir(dir)
	must(tb, err)
	files := make(map[string]string)
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		must(tb, err)
		files[e.Name()] = string(text)
	}
	return files
}

func wantContents(tb testing.TB, when, dir string, want map[string]string) {
	tb.Helper()
	got := contents(tb, dir)
	for name, text := range want {
		if got[name] != text {
			tb.Errorf("%s: %s is\n%s\nwant\n%s", when, name, got[name], text)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			tb.Errorf("%s: %s is left", when, name)
		}
	}
}

// load returns the list that a container runtime has after loading the directory, as containerd does.
func load(tb testing.TB, dir string) *libcni.NetworkConfigList {
	tb.Helper()
	files, err := libcni.ConfFiles(dir, []string{".conf", ".conflist", ".json"})
	must(tb, err)
	slices.Sort(files)
	if filepath.Ext(files[0]) == ".conflist" {
		list, err := libcni.ConfListFromFile(files[0])
		must(tb, err)
		return list
	}
	//nolint:staticcheck // it is how runtimes load such files
	conf, err := libcni.ConfFromFile(files[0])
	must(tb, err)
	list, err := libcni.ConfListFromConf(conf) //nolint:staticcheck // so is this
	must(tb, err)
	return list
}

// TestJoinAndLeave: with each configuration, the plugin is last for the runtime, nothing else changes, and
// afterwards everything is as before.
func TestJoinAndLeave(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*")
	must(t, err)
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			must(t, err)
			others := map[string]string{"99-last.conflist": `{`, "calico-kubeconfig": "x", "README": "y"}
			before := map[string]string{name: string(text)}
			maps.Copy(before, others)
			dir := directory(t, before)
			was := load(t, dir)
			cfg := Config{ConfDir: dir, Socket: socket}
			n, err := Join(cfg)
			if err != nil || !n.Changed {
				t.Fatalf("Join: %+v, %v, want a change", n, err)
			}
			wantJoined(t, was, load(t, dir))
			info, err := os.Stat(n.File)
			if err != nil || info.Mode().Perm() != 0o640 {
				t.Errorf("%s: %v, %v, want the mode of before", n.File, info.Mode(), err)
			}
			joined := contents(t, dir)
			again, err := Join(cfg)
			if err != nil || again.Changed || again.File != n.File || !slices.Equal(again.Plugins, n.Plugins) {
				t.Errorf("Join again: %+v, %v, want %+v without a change", again, err, n)
			}
			wantContents(t, "after Join again", dir, joined)
			moved, err := Join(Config{ConfDir: dir, Socket: "/run/other.sock"})
			if err != nil || !moved.Changed {
				t.Errorf("Join with another socket: %+v, %v, want a change", moved, err)
			}
			if _, err := Join(cfg); err != nil {
				t.Error(err)
			}
			wantContents(t, "after two changes of the socket", dir, joined)

			changed, err := Leave(cfg)
			if want := filepath.Join(dir, name); !slices.Equal(changed, []string{want}) {
				t.Errorf("Leave: changed %q, %v, want %s", changed, err, want)
			}
			if err == nil || !strings.Contains(err.Error(), "99-last.conflist: ") {
				t.Errorf("Leave: %v, want an error about 99-last.conflist", err)
			}
			wantContents(t, "after Leave", dir, before)
			if changed, _ := Leave(cfg); changed != nil {
				t.Errorf("Leave again: changed %q", changed)
			}
		})
	}
}

// wantJoined checks that a list is the one before with the plugin at its end.
func wantJoined(t *testing.T, before, now *libcni.NetworkConfigList) {
	t.Helper()
	last := len(now.Plugins) - 1
	if now.Name != before.Name || now.CNIVersion != before.CNIVersion || now.DisableCheck != before.DisableCheck || last != len(before.Plugins) {
		t.Fatalf("the runtime loads %+v, want %+v and the plugin", now, before)
	}
	for i, p := range before.Plugins {
		if !bytes.Equal(now.Plugins[i].Bytes, p.Bytes) {
			t.Errorf("plugin %d: %s, want %s", i, now.Plugins[i].Bytes, p.Bytes)
		}
	}
	if got := string(now.Plugins[last].Bytes); got != `{"socket":"`+socket+`","type":"portolan"}` || now.Plugins[last].Network.Type != plugin.Type {
		t.Errorf("the last plugin is %s", got)
	}
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                               "is empty or cut off",
		"  \n":                           "is empty or cut off",
		"[]":                             "has [ instead of {",
		`{"cniVersion": "1.0.0", "name"`: "is empty or cut off",
		`{"cniVersion": "1.0.0", "name": "x", "plugins": [{"type": "ptp"}`:                                   "is empty or cut off",
		`{"cniVersion": "1.0.0", "name": "x", "plugins": [{"type": "ptp"}]} {}`:                              "has something after its object",
		`{"cniVersion": "1.0.0", "name": "x", "plugins": [{"type": "ptp"}], "plugins": []}`:                  `has "plugins" twice`,
		`{"cniVersion": "1.0.0", "name": "x", "name": "y", "plugins": [{"type": "ptp"}]}`:                    `has "name" twice`,
		`{"cniVersion": "1.0.0", "name": "x", "plugins": {"type": "ptp"}}`:                                   "plugins: has { instead of [",
		`{"cniVersion": "1.0.0", "name": "x", "plugins": []}`:                                                "has no plugins",
		`{"cniVersion": "1.0.0", "name": "x", "plugins": [{"type":"portolan"}]}`:                             "has no plugins",
		`{"cniVersion": "1.0.0", "name": "x", "plugins": [{"Type": 1}]}`:                                     "has a plugin without type",
		`{"cniVersion": "1.0.0", "name": "x", "plugins": ["ptp"]}`:                                           "has a plugin without type",
		`{"cniVersion": "1.0.0", "name": "x"}`:                                                               "has neither type nor plugins",
		`{"cniVersion": "1.0.0", "name": "x", "type": "ptp"}`:                                                "has no plugins: a single configuration has the extension .conf",
		`{"cniVersion": "1.0.0", "plugins": [{"type": "ptp"}]}`:                                              "has no name",
		`{"cniVersion": 1, "name": "x", "plugins": [{"type": "ptp"}]}`:                                       "cniVersion: json: cannot unmarshal number into Go value of type string",
		`{"cniVersion": "0.2.0", "name": "x", "plugins": [{"type": "ptp"}]}`:                                 `has cniVersion "0.2.0", and the plugin speaks 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0`,
		`{"name": "x", "plugins": [{"type": "ptp"}]}`:                                                        `has cniVersion "", and the plugin speaks 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0`,
		"\xef\xbb\xbf" + `{"cniVersion": "1.0.0", "name": "x", "plugins": [{"type": "ptp"}]}`:                "invalid character 'ï' looking for beginning of value",
		`{"cniVersion": "1.0.0", "name": "x", "plugins": [{"type": "ptp"}], // a comment` + "\n" + `"x": 1}`: "invalid character '/'",
	} {
		before := map[string]string{"10-net.conflist": text, "20-good.conf": `{"cniVersion": "1.0.0", "name": "x", "type": "ptp"}`}
		dir := directory(t, before)
		_, err := Join(Config{ConfDir: dir})
		if err == nil || !strings.HasPrefix(err.Error(), filepath.Join(dir, "10-net.conflist")+": ") || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("Join with %s: %v, want %s", text, err, want)
		}
		wantContents(t, "after Join with "+text, dir, before)
	}
	_, err := Join(Config{ConfDir: directory(t, map[string]string{"10-net.conf": `{"cniVersion": "1.0.0", "name": "x", "plugins": [{"type": "ptp"}]}`})})
	if err == nil || !strings.HasSuffix(err.Error(), "10-net.conf: has plugins: a list has the extension .conflist") {
		t.Errorf("Join with a list in a .conf: %v", err)
	}
	for _, dir := range []string{t.TempDir(), "testdata/none"} {
		if _, err := Join(Config{ConfDir: dir}); !errors.Is(err, ErrNoNetwork) {
			t.Errorf("Join without a configuration: %v, want ErrNoNetwork", err)
		}
	}
}

// TestOthersEditMeanwhile: what other programs wrote after Join stays when the plugin leaves.
func TestOthersEditMeanwhile(t *testing.T) {
	t.Parallel()
	const single = `{"cniVersion": "1.0.0", "name": "x", "type": "ptp"}`
	const list = `{"cniVersion": "1.0.0", "name": "x", "plugins": [%s]}`
	for name, test := range map[string]struct{ files, want map[string]string }{
		"the entry is first": {
			map[string]string{"1.conflist": `{"name": "x", "plugins": [{"type":"portolan"}, {"type":"portolan"}, {"type": "ptp"}]}`},
			map[string]string{"1.conflist": `{"name": "x", "plugins": [{"type": "ptp"}]}`},
		},
		"the entry is between": {
			map[string]string{"1.conflist": `{"name": "x", "plugins": [{"type": "ptp"}, {"type":"portolan"}, {"type": "a"}, {"type":"portolan"}]}`},
			map[string]string{"1.conflist": `{"name": "x", "plugins": [{"type": "ptp"}, {"type": "a"}]}`},
		},
		"the installer wrote the .conf again": {
			map[string]string{"1.conf": "new", "1.conf.conflist": strings.Replace(list, "%s", single+`,{"type":"portolan"}`, 1), "1.conf.portolan-saved": single},
			map[string]string{"1.conf": "new"},
		},
		"a plugin was added to a list that was a .conf": {
			map[string]string{"1.conf.conflist": strings.Replace(list, "%s", single+`,{"type":"portolan"},{"type":"istio-cni"}`, 1), "1.conf.portolan-saved": single},
			map[string]string{"1.conf.conflist": strings.Replace(list, "%s", single+`,{"type":"istio-cni"}`, 1), "1.conf.portolan-saved": single},
		},
		"two files have the entry": {
			map[string]string{"1.conflist": strings.Replace(list, "%s", single+`,{"type":"portolan"}`, 1), "2.conflist": strings.Replace(list, "%s", single+`,{"type":"portolan"}`, 1)},
			map[string]string{"1.conflist": strings.Replace(list, "%s", single, 1), "2.conflist": strings.Replace(list, "%s", single, 1)},
		},
		"renamed by Cilium": {
			map[string]string{"1.conflist.cilium_bak": strings.Replace(list, "%s", single+`,{"type":"portolan"}`, 1)},
			map[string]string{"1.conflist.cilium_bak": strings.Replace(list, "%s", single+`,{"type":"portolan"}`, 1)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := directory(t, test.files)
			if _, err := Leave(Config{ConfDir: dir}); err != nil {
				t.Error(err)
			}
			wantContents(t, "after Leave", dir, test.want)
		})
	}
}

// TestJoinMovesTheEntry: before the plugin that gives addresses it would fail.
func TestJoinMovesTheEntry(t *testing.T) {
	t.Parallel()
	dir := directory(t, map[string]string{"1.conflist": `{"cniVersion": "1.0.0", "name": "x", "plugins": [ {"type":"portolan"}, {"type": "ptp"} ]}`})
	if n, err := Join(Config{ConfDir: dir, Socket: "/s"}); err != nil || !n.Changed {
		t.Fatalf("Join: %+v, %v", n, err)
	}
	wantContents(t, "after Join", dir, map[string]string{
		"1.conflist": `{"cniVersion": "1.0.0", "name": "x", "plugins": [ {"type": "ptp"}, {"type":"portolan","socket":"/s"} ]}`,
	})
}

// TestConfBesideList: a list that has the name without .conf is another network's.
func TestConfBesideList(t *testing.T) {
	t.Parallel()
	before := map[string]string{
		"10-net.conf":     `{"cniVersion": "1.0.0", "name": "x", "type": "ptp"}`,
		"10-net.conflist": `{"cniVersion": "1.0.0", "name": "y", "plugins": [{"type": "bridge"}]}`,
	}
	dir := directory(t, before)
	was := load(t, dir)
	_, err := Join(Config{ConfDir: dir, Socket: socket})
	must(t, err)
	wantJoined(t, was, load(t, dir))
	_, err = Leave(Config{ConfDir: dir})
	must(t, err)
	wantContents(t, "after Leave", dir, before)
}

// TestSymbolicLink: the file that a link names changes, and the link stays.
func TestSymbolicLink(t *testing.T) {
	t.Parallel()
	target := directory(t, map[string]string{"net": `{"cniVersion": "1.0.0", "name": "x", "plugins": [{"type": "ptp"}]}`})
	dir := t.TempDir()
	link := filepath.Join(dir, "10-net.conflist")
	must(t, os.Symlink(filepath.Join(target, "net"), link))
	_, err := Join(Config{ConfDir: dir, Socket: "/s"})
	must(t, err)
	if info, err := os.Lstat(link); err != nil || info.Mode().Type() != os.ModeSymlink {
		t.Errorf("the link is %v, %v", info.Mode(), err)
	}
	if !strings.Contains(contents(t, target)["net"], `,{"type":"portolan","socket":"/s"}]`) {
		t.Errorf("the file is %s", contents(t, target)["net"])
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	const module = "load the kernel module br_netfilter and set net.bridge.bridge-nf-call-iptables=1 and net.bridge.bridge-nf-call-ip6tables=1"
	off := directory(t, map[string]string{"bridge-nf-call-iptables": "1\n", "bridge-nf-call-ip6tables": "0\n"})
	on := directory(t, map[string]string{"bridge-nf-call-iptables": "1\n", "bridge-nf-call-ip6tables": "1\n"})
	for name, test := range map[string]struct {
		kind, settings, want string
	}{
		"a bridge without the module":  {"bridge", "testdata/none", module},
		"a bridge without the setting": {"bridge", off, "and set net.bridge.bridge-nf-call-ip6tables=1"},
		"flannel":                      {"flannel", off, "the plugin flannel connects Pods by a bridge"},
		"a bridge":                     {"bridge", on, ""},
		"ptp":                          {"ptp", "testdata/none", ""},
		"Cilium":                       {"cilium-cni", on, "cni.exclusive"},
	} {
		n := Network{Plugins: []string{test.kind, "portmap"}}
		got := strings.Join(append(n.bridged(test.settings), n.unsupported()...), "\n")
		if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: warnings %q, want %q", name, got, test.want)
		}
	}
}
