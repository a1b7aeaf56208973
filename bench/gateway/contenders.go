package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"portolan.dev/portolan/bench/gateway/calls"
	"portolan.dev/portolan/bench/rig"
)

// These are the contenders.
const (
	portolan = rig.NamePortolan
	reverse  = "ReverseProxy" // of Go's library
	caddy    = rig.NameCaddy
	nginx    = rig.NameNginx
	haproxy  = rig.NameHAProxy
)

// contenderNames returns the names in the order of the tables.
func contenderNames() []string { return []string{portolan, reverse, caddy, nginx, haproxy} }

// entrant is a contender that can be started repeatedly, with its version.
type entrant struct {
	name, version string
	command       func(listen netip.AddrPort, admin netip.AddrPort) (*exec.Cmd, error)
}

// host is the host of all requests.
const host = "bench.example"

// manifests are formatted with the backend's port. The address of the endpoint is replaced by the flag --endpoint.
const manifests = `apiVersion: v1
kind: Service
metadata: {name: web, namespace: bench}
spec: {ports: [{port: 80}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: bench}
spec: {controllerName: portolan.dev/gateway}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: bench, namespace: bench}
spec: {gatewayClassName: bench, listeners: [{name: http, protocol: HTTP, port: 80}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: bench, namespace: bench}
spec:
  parentRefs: [{name: bench}]
  hostnames: [` + host + `]
  rules: [{backendRefs: [{name: web, port: 80}]}]
`

// caddyfile, nginxConfig and haproxyConfig are formatted with the address to listen at and the backend's. None writes
// a log of requests, and each has one worker and room for as many connections as are measured.
const (
	caddyfile = `{
	admin off
	auto_https off
}
http://%[3]s:%[2]d {
	bind 127.0.0.1
	reverse_proxy %[4]s {
		transport http {
			keepalive_idle_conns_per_host 1024
		}
	}
}
`
	nginxConfig = `daemon off;
worker_processes 1;
error_log stderr;
pid %[5]s.pid;
events { worker_connections 20000; }
http {
  access_log off;
  keepalive_timeout 300s;
  keepalive_requests 100000000;
  client_body_temp_path %[5]s.body;
  proxy_temp_path %[5]s.proxy;
  fastcgi_temp_path %[5]s.fastcgi;
  uwsgi_temp_path %[5]s.uwsgi;
  scgi_temp_path %[5]s.scgi;
  upstream web {
    server %[4]s;
    keepalive 1024;
    keepalive_requests 100000000;
  }
  server {
    listen %[1]s:%[2]d;
    server_name %[3]s;
    location / {
      proxy_pass http://web;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $host;
      proxy_set_header X-Forwarded-For $remote_addr;
    }
  }
}
`
	haproxyConfig = `global
  nbthread 1
  maxconn 9000
defaults
  mode http
  timeout connect 5s
  timeout client 300s
  timeout server 300s
  timeout http-keep-alive 300s
  http-reuse always
frontend front
  bind %[1]s:%[2]d
  acl here hdr(host) -i %[3]s
  use_backend web if here
backend web
  option forwardfor
  server web %[4]s
`
)

// entrant returns a contender by its name.
func (b *bench) entrant(ctx context.Context, w *rig.Workshop, name string) (*entrant, error) {
	if name == reverse {
		tool, err := w.Tool(ctx, "gateway/reverse")
		command := func(listen, _ netip.AddrPort) (*exec.Cmd, error) {
			return exec.Command(tool, listen.String(), b.backend), nil
		}
		return &entrant{name: name, command: command}, err
	}
	program := b.portolan
	if name != portolan {
		var err error
		if program, err = w.Program(ctx, name); err != nil {
			return nil, err
		}
	}
	config := b.file(name + ".conf")
	configured := func(format string, args ...string) func(listen, _ netip.AddrPort) (*exec.Cmd, error) {
		return func(listen, _ netip.AddrPort) (*exec.Cmd, error) {
			text := fmt.Sprintf(format, listen.Addr(), listen.Port(), host, b.backend, config)
			return program.Command(append(args, config)...), os.WriteFile(config, []byte(text), 0o600)
		}
	}
	e := &entrant{name: name, version: program.Version}
	switch name {
	case portolan:
		e.command = func(listen, admin netip.AddrPort) (*exec.Cmd, error) {
			c := program.Command(
				"gateway", "--manifests", config, "--listen", listen.Addr().String(), "--admin", admin.String(),
				"--port-offset", strconv.Itoa(int(listen.Port())-80), "--endpoint", "bench/web="+b.backend,
			)
			return c, os.WriteFile(config, []byte(manifests), 0o600)
		}
	case caddy:
		e.command = configured(caddyfile, "run", "--adapter", "caddyfile", "--config")
	case nginx:
		e.command = configured(nginxConfig, "-p", b.dir, "-c")
	case haproxy:
		e.command = configured(haproxyConfig, "-db", "-f")
	}
	return e, nil
}

// start starts a contender and waits until it passes requests.
func (b *bench) start(ctx context.Context, e *entrant) (*rig.Server, error) {
	c := &rig.Contender{
		Name: e.name, Log: b.file(e.name + ".log"), CPUs: []int{proxyCPU}, Ready: answers,
		Command: func(ports []netip.AddrPort) (*exec.Cmd, error) { return e.command(ports[0], ports[1]) },
	}
	s, err := c.Start()
	if err != nil {
		return nil, err
	}
	if err := s.WaitReady(ctx); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// answers checks a contender with a request.
func answers(_ context.Context, ports []netip.AddrPort) error {
	c, err := calls.Dial(ports[0], netip.Addr{}, request(smallSize))
	if err != nil {
		return err
	}
	defer c.Close()
	switch status, _, err := c.Call(); {
	case err != nil:
		return err
	case status != http.StatusOK:
		return fmt.Errorf("status %d", status)
	}
	return nil
}

// startBackend starts the backend, until stop is called.
func (b *bench) startBackend(ctx context.Context, w *rig.Workshop) (stop func(), err error) {
	tool, err := w.Tool(ctx, "gateway/backend")
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, tool)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	started, ended := make(chan error), make(chan struct{})
	go func() { // which lives as long as the backend
		defer close(ended)
		err := rig.StartOn(cmd, []int{otherCPU})
		started <- err
		if err == nil {
			_ = cmd.Wait() // it is killed
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	stop = func() {
		_ = cmd.Process.Kill()
		<-ended
	}
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		stop()
		return nil, errors.Join(errors.New("the backend prints no address"), err)
	}
	b.backend = strings.TrimSpace(address)
	return stop, nil
}
