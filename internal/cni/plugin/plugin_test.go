package plugin

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"portolan.dev/portolan/internal/cni/attach"
)

// TestErrors: what cannot be done is told with the code of the specification, in one line.
func TestErrors(t *testing.T) {
	t.Parallel()
	const head = `{"cniVersion": "1.0.0", "name": "pods", "type": "portolan", "socket": "/nonexistent/cni.sock"`
	const prev = `, "prevResult": {"ips": [{"address": "10.244.1.7/24"}, {"address": "fd00::7/64"}]}`
	for name, test := range map[string]struct {
		env  map[string]string // over that of ADD for a Pod
		conf string
		code attach.Code
		want string
	}{
		"no agent":                  {nil, head + prev + "}", attach.CodeTryAgain, "Pod shop/web does not start without its policies: the agent does not answer at /nonexistent/cni.sock: no such file or directory"},
		"no agent for STATUS":       {map[string]string{"CNI_COMMAND": "STATUS"}, strings.Replace(head, "1.0.0", "1.1.0", 1) + "}", attach.CodeUnavailable, "the agent does not answer at /nonexistent/cni.sock: no such file or directory"},
		"no agent for GC":           {map[string]string{"CNI_COMMAND": "GC"}, strings.Replace(head, "1.0.0", "1.1.0", 1) + "}", attach.CodeTryAgain, "the agent does not answer at /nonexistent/cni.sock: no such file or directory"},
		"unknown command":           {map[string]string{"CNI_COMMAND": "add"}, head + prev + "}", attach.CodeEnvironment, `CNI_COMMAND "add" is unknown`},
		"no container":              {map[string]string{"CNI_CONTAINERID": ""}, head + prev + "}", attach.CodeEnvironment, `CNI_CONTAINERID, CNI_IFNAME: container ID "" is not of 1 to 128 octets`},
		"a path as container":       {map[string]string{"CNI_CONTAINERID": "a/../b"}, head + prev + "}", attach.CodeEnvironment, `CNI_CONTAINERID, CNI_IFNAME: container ID "a/../b" has characters that the CNI specification does not allow`},
		"a path as interface":       {map[string]string{"CNI_IFNAME": ".."}, head + prev + "}", attach.CodeEnvironment, `CNI_CONTAINERID, CNI_IFNAME: interface ".." is not the name of a device`},
		"no namespace":              {map[string]string{"CNI_NETNS": ""}, head + prev + "}", attach.CodeEnvironment, "CNI_NETNS is not set"},
		"no Pod":                    {map[string]string{"CNI_ARGS": "IgnoreUnknown=1"}, head + prev + "}", attach.CodeEnvironment, "CNI_ARGS has no K8S_POD_NAMESPACE and K8S_POD_NAME: policies are for Pods of Kubernetes"},
		"an old version":            {nil, `{"cniVersion": "0.2.0", "name": "pods"}`, attach.CodeVersion, `cniVersion "0.2.0" is not one of 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0`},
		"no version":                {nil, `{"name": "pods"}`, attach.CodeVersion, `cniVersion "" is not one of 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0`},
		"CHECK of 0.3.1":            {map[string]string{"CNI_COMMAND": "CHECK"}, `{"cniVersion": "0.3.1", "name": "pods"}`, attach.CodeVersion, "CHECK needs cniVersion 0.4.0, not 0.3.1"},
		"GC of 1.0.0":               {map[string]string{"CNI_COMMAND": "GC"}, `{"cniVersion": "1.0.0", "name": "pods"}`, attach.CodeVersion, "GC needs cniVersion 1.1.0, not 1.0.0"},
		"no name":                   {nil, `{"cniVersion": "1.0.0"}`, attach.CodeConfig, "the configuration has no name"},
		"no JSON":                   {nil, `{"cniVersion": "1.0.0`, attach.CodeDecode, "configuration: unexpected end of JSON input"},
		"a socket somewhere":        {nil, `{"cniVersion": "1.0.0", "name": "pods", "socket": "cni.sock"}`, attach.CodeConfig, `socket "cni.sock" is not an absolute path`},
		"no plugin before":          {nil, head + "}", attach.CodeTryAgain, "Pod shop/web has no network: the agent does not answer at /nonexistent/cni.sock: no such file or directory"},
		"a prevResult of null":      {nil, head + `, "prevResult": null}`, attach.CodeTryAgain, "Pod shop/web has no network: the agent does not answer at /nonexistent/cni.sock: no such file or directory"},
		"no address":                {nil, head + `, "prevResult": {"ips": []}}`, attach.CodeConfig, "prevResult has no address"},
		"a prevResult of version 0": {nil, head + `, "prevResult": {"ips": {"address": ""}}}`, attach.CodeDecode, "prevResult: json: cannot unmarshal object into Go struct field prevResult.ips"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			status := run(environment(test.env), strings.NewReader(test.conf), &stdout, &stderr)
			var got failure
			if err := json.Unmarshal(stdout.Bytes(), &got); err != nil || status != 1 || stderr.Len() > 0 {
				t.Fatalf("status %d, %v\nstdout: %s\nstderr: %s", status, err, &stdout, &stderr)
			}
			if got.Code != test.code || !strings.HasPrefix(got.Message, "portolan: "+test.want) || got.Version == "" || bytes.Count(stdout.Bytes(), []byte("\n")) != 1 {
				t.Errorf("error %+v, want code %d, %s", got, test.code, test.want)
			}
		})
	}
}

// environment is that of ADD for a Pod, but for what is in changed.
func environment(changed map[string]string) func(string) string {
	env := map[string]string{
		"CNI_COMMAND": "ADD", "CNI_CONTAINERID": "abc", "CNI_NETNS": "/run/netns/x", "CNI_IFNAME": "eth0",
		"CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;K8S_POD_UID=u-1",
	}
	maps.Copy(env, changed)
	return func(name string) string { return env[name] }
}

// TestUnreadable: a runtime that goes away leaves no half of a result.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	status := run(environment(nil), iotest.ErrReader(errors.New("broken")), &stdout, &stderr)
	if want := `{"cniVersion":"1.1.0","code":5,"msg":"portolan: configuration: broken"}` + "\n"; status != 1 || stdout.String() != want {
		t.Errorf("status %d, %s, want %s", status, &stdout, want)
	}
}

// TestResultIsUnchanged: the result of the plugin before reaches the runtime to the octet.
func TestResultIsUnchanged(t *testing.T) {
	t.Parallel()
	socket, requests := agent(t, nil, nil)
	const result = `{ "ips":[{"address": "10.244.1.7/24","interface":1}, {"address":"fd00::7/64"}], "unknown": 18446744073709551616,"cniVersion":"1.1.0",
		"interfaces": [{"name": "cni0"}, {"name": "veth7", "sandbox": ""}, {"name": "eth0", "sandbox": "/run/netns/x"}]}`
	conf := `{"cniVersion": "1.1.0", "name": "pods", "type": "portolan", "socket": "` + socket + `", "prevResult": ` + result + `}`
	var stdout, stderr bytes.Buffer
	if status := run(environment(nil), strings.NewReader(conf), &stdout, &stderr); status != 0 || stdout.String() != result || stderr.Len() > 0 {
		t.Errorf("status %d\nstdout: %s\nstderr: %s\nwant: %s", status, &stdout, &stderr, result)
	}
	got := <-requests
	want := attach.Sandbox{
		ID: attach.ID{ContainerID: "abc", Interface: "eth0"}, Network: "pods", NetNS: "/run/netns/x", Namespace: "shop", Name: "web", UID: "u-1",
	}
	if got.Verb != attach.Admit || got.Sandbox != want || strings.Join(got.Addresses, " ") != "10.244.1.7 fd00::7" ||
		strings.Join(got.Devices, " ") != "cni0 veth7" {
		t.Errorf("request %+v", got)
	}
}

// agent answers one request with a result or an error. It returns its socket, and the request.
func agent(t *testing.T, result *attach.Result, failure error) (socket string, requests <-chan attach.Request) {
	t.Helper()
	dir, err := os.MkdirTemp("", "cni") //nolint:usetesting // the name of a test would make it too long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan attach.Request, 1)
	go func() {
		defer l.Close()
		conn, err := l.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		text, err := attach.Read(conn)
		var r attach.Request
		if err == nil {
			r, err = attach.Parse(text)
		}
		if err == nil {
			err = attach.WriteReply(conn, result, failure)
		}
		if err != nil {
			t.Error(err)
		}
		got <- r
	}()
	return l.Addr().String(), got
}

// TestLink: the first plugin of a list prints the link that the agent made, as each version of the specification has it.
func TestLink(t *testing.T) {
	t.Parallel()
	made := &attach.Result{
		Host: attach.Interface{Name: "ptl0", MAC: "ee:ee:ee:ee:ee:ee", MTU: 1450},
		Pod:  attach.Interface{Name: "eth0", MAC: "0a:58:0a:f4:01:07", MTU: 1450},
		Addrs: []attach.Address{
			{Address: "10.244.1.7/32", Gateway: "169.254.1.1"}, {Address: "fd00::7/128", Gateway: "fe80::1"},
		},
	}
	for version, want := range map[string]string{
		"0.4.0": `{"cniVersion":"0.4.0","interfaces":[{"name":"ptl0","mac":"ee:ee:ee:ee:ee:ee"},` +
			`{"name":"eth0","mac":"0a:58:0a:f4:01:07","sandbox":"/run/netns/x"}],` +
			`"ips":[{"version":"4","interface":1,"address":"10.244.1.7/32","gateway":"169.254.1.1"},` +
			`{"version":"6","interface":1,"address":"fd00::7/128","gateway":"fe80::1"}],` +
			`"routes":[{"dst":"0.0.0.0/0","gw":"169.254.1.1"},{"dst":"::/0","gw":"fe80::1"}],"dns":{}}`,
		"1.0.0": `{"cniVersion":"1.0.0","interfaces":[{"name":"ptl0","mac":"ee:ee:ee:ee:ee:ee"},` +
			`{"name":"eth0","mac":"0a:58:0a:f4:01:07","sandbox":"/run/netns/x"}],` +
			`"ips":[{"interface":1,"address":"10.244.1.7/32","gateway":"169.254.1.1"},` +
			`{"interface":1,"address":"fd00::7/128","gateway":"fe80::1"}],` +
			`"routes":[{"dst":"0.0.0.0/0","gw":"169.254.1.1"},{"dst":"::/0","gw":"fe80::1"}],"dns":{}}`,
		"1.1.0": `{"cniVersion":"1.1.0","interfaces":[{"name":"ptl0","mac":"ee:ee:ee:ee:ee:ee","mtu":1450},` +
			`{"name":"eth0","mac":"0a:58:0a:f4:01:07","mtu":1450,"sandbox":"/run/netns/x"}],` +
			`"ips":[{"interface":1,"address":"10.244.1.7/32","gateway":"169.254.1.1"},` +
			`{"interface":1,"address":"fd00::7/128","gateway":"fe80::1"}],` +
			`"routes":[{"dst":"0.0.0.0/0","gw":"169.254.1.1"},{"dst":"::/0","gw":"fe80::1"}],"dns":{}}`,
	} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			socket, requests := agent(t, made, nil)
			conf := `{"cniVersion": "` + version + `", "name": "pods", "type": "portolan", "socket": "` + socket + `", "runtimeConfig": {` +
				`"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp", "hostIP": "192.0.2.1"}],` +
				`"bandwidth": {"ingressRate": 1000000, "ingressBurst": 2000000}}}`
			var stdout, stderr bytes.Buffer
			status := run(environment(nil), strings.NewReader(conf), &stdout, &stderr)
			if got := strings.TrimSpace(stdout.String()); status != 0 || got != want || stderr.Len() > 0 {
				t.Errorf("status %d\nstdout: %s\nstderr: %s\nwant: %s", status, got, &stderr, want)
			}
			r := <-requests
			port := attach.Port{HostPort: 8080, ContainerPort: 80, Protocol: "tcp", HostIP: "192.0.2.1"}
			if r.Verb != attach.Add || r.Pod() != "shop/web" || r.NetNS != "/run/netns/x" || len(r.Ports) != 1 || r.Ports[0] != port ||
				r.Bandwidth == nil || *r.Bandwidth != (attach.Bandwidth{IngressRate: 1e6, IngressBurst: 2e6}) {
				t.Errorf("request %+v", r)
			}
		})
	}
}

// TestRefusedLink: the agent's reason reaches the runtime with its code.
func TestRefusedLink(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		failure error
		code    attach.Code
	}{
		"without a code": {errors.New("it is full"), attach.CodeTryAgain},
		"with a code":    {&attach.RefusedError{Code: attach.CodeContainer, Text: "it is full"}, attach.CodeContainer},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			socket, _ := agent(t, nil, test.failure)
			conf := `{"cniVersion": "1.1.0", "name": "pods", "type": "portolan", "socket": "` + socket + `"}`
			var stdout, stderr bytes.Buffer
			status := run(environment(nil), strings.NewReader(conf), &stdout, &stderr)
			var got failure
			if err := json.Unmarshal(stdout.Bytes(), &got); err != nil || status != 1 ||
				got != (failure{"1.1.0", test.code, "portolan: Pod shop/web has no network: it is full", ""}) {
				t.Errorf("status %d, %v, %+v", status, err, got)
			}
		})
	}
}

// TestCheckFails: what is not there is told with the plugin's own code, and what cannot be found out now with another.
func TestCheckFails(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		failure error
		code    attach.Code
	}{
		"something is not there": {errors.New("device ptl0 is down\nhostPort TCP 80"), codeBroken},
		"not known now":          {&attach.RefusedError{Code: attach.CodeTryAgain, Text: "device ptl0 is down\nhostPort TCP 80"}, attach.CodeTryAgain},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			socket, _ := agent(t, nil, test.failure)
			conf := `{"cniVersion": "1.1.0", "name": "pods", "type": "portolan", "socket": "` + socket +
				`", "prevResult": {"ips": [{"address": "10.244.1.7/32"}]}}`
			var stdout, stderr bytes.Buffer
			status := run(environment(map[string]string{"CNI_COMMAND": "CHECK"}), strings.NewReader(conf), &stdout, &stderr)
			var got failure
			if err := json.Unmarshal(stdout.Bytes(), &got); err != nil || status != 1 ||
				got != (failure{"1.1.0", test.code, "portolan: Pod shop/web: device ptl0 is down; hostPort TCP 80", ""}) {
				t.Errorf("status %d, %v, %+v", status, err, got)
			}
		})
	}
}
