package attach_test

import (
	"encoding/json"
	"strings"
	"testing"

	"portolan.dev/portolan/internal/cni/attach"
)

// TestValidate: what would be another path or another device is refused.
func TestValidate(t *testing.T) {
	t.Parallel()
	good := attach.ID{ContainerID: strings.Repeat("0f", 32), Interface: "eth0"}
	if err := good.Validate(); err != nil {
		t.Fatalf("Validate = %v", err)
	}
	for claim, id := range map[string]attach.ID{
		"a path as ID":              {"../x", "eth0"},
		"an ID with the octet 0":    {"a\x00", "eth0"},
		"a long ID":                 {strings.Repeat("a", 10_000), "eth0"},
		"no ID":                     {"", "eth0"},
		"no device":                 {"a", ""},
		"a path as device":          {"a", "../x"},
		"the directory of devices":  {"a", ".."},
		"all devices":               {"a", "all"},
		"devices to come":           {"a", "default"},
		"a pattern of devices":      {"a", "eth%d"},
		"a device with the octet 0": {"a", "a\x00b"},
		"a device with a tabulator": {"a", "a\vb"},
		"a long device":             {"a", strings.Repeat("x", 16)},
	} {
		if err := id.Validate(); err == nil || len(err.Error()) > 300 {
			t.Errorf("%s: Validate = %.400v", claim, err)
		}
	}
}

// TestText: what would be a record or a line of the log without end is refused.
func TestText(t *testing.T) {
	t.Parallel()
	for claim, change := range map[string]func(*attach.Sandbox){
		"a long ID":                    func(s *attach.Sandbox) { s.ContainerID = strings.Repeat("a", 129) },
		"a long name":                  func(s *attach.Sandbox) { s.Name = strings.Repeat("x", 254) },
		"a long namespace":             func(s *attach.Sandbox) { s.Namespace = strings.Repeat("x", 254) },
		"a long UID":                   func(s *attach.Sandbox) { s.UID = strings.Repeat("x", 254) },
		"a long network":               func(s *attach.Sandbox) { s.Network = strings.Repeat("x", 254) },
		"a long path":                  func(s *attach.Sandbox) { s.NetNS = strings.Repeat("x", 4096) },
		"a path with the octet 0":      func(s *attach.Sandbox) { s.NetNS = "/run/netns/x\x00" },
		"a namespace with the octet 0": func(s *attach.Sandbox) { s.Namespace = "\x00" },
	} {
		r := attach.Request{Version: 1}
		change(&r.Sandbox)
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := attach.Parse(text); err == nil || len(err.Error()) > 300 {
			t.Errorf("%s: Parse = %.400v", claim, err)
		}
	}
}

// TestBounds: a request that is too long, or asks for too much, is refused with the bound.
func TestBounds(t *testing.T) {
	t.Parallel()
	ports := `{"version":1,"verb":"add","ports":[{}` + strings.Repeat(",{}", 4096) + `]}`
	text, err := attach.Read(strings.NewReader(ports))
	if err != nil {
		t.Fatalf("Read = %v", err)
	}
	if _, err := attach.Parse(text); err == nil || !strings.Contains(err.Error(), "4096 at most") {
		t.Errorf("Parse of 4,097 ports = %v", err)
	}
	long := `{"name":"` + strings.Repeat("x", 1<<20) + `"}`
	if _, err := attach.Read(strings.NewReader(long)); err == nil || !strings.Contains(err.Error(), "1048576 octets") {
		t.Errorf("Read of a MiB = %v", err)
	}
}
