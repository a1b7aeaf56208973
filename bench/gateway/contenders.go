package gateway

import (
	"bufio"
	"context"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"

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

// setup has the configuration of each contender of a group; of ReverseProxy, its third argument. In the others, these
// words are replaced: ADDRESS and PORT to listen at, HOST, BACKEND, FILES (a prefix for paths), PEM (the path of the
// certificate with its key), and CERTIFICATE and KEY (in base64).
type setup map[string]string

// manifests returns a Gateway with one listener and a route to the backend, whose endpoint is set by the flag
// --endpoint.
func manifests(listener, route string) string {
	return `apiVersion: v1
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
spec: {gatewayClassName: bench, listeners: [{name: bench, port: 80, ` + listener + `}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: ` + route + `
metadata: {name: bench, namespace: bench}
spec:
  parentRefs: [{name: bench}]
  rules: [{backendRefs: [{name: web, port: 80}]}]
`
}

// The configurations write no log of requests, and have one worker and room for as many connections as are measured.
const caddyfile = `{
	admin off
	auto_https off
}
http://HOST:PORT {
	bind 127.0.0.1
	reverse_proxy BACKEND {
		transport http {
			keepalive_idle_conns_per_host 1024
		}
	}
}
`

// nginxConfig has options of the socket and the directives of the location.
func nginxConfig(listen, location string) string {
	return `daemon off;
worker_processes 1;
error_log stderr;
pid FILES.pid;
events { worker_connections 20000; }
http {
  access_log off;
  keepalive_timeout 300s;
  keepalive_requests 100000000;
  client_body_temp_path FILES.body;
  proxy_temp_path FILES.proxy;
  fastcgi_temp_path FILES.fastcgi;
  uwsgi_temp_path FILES.uwsgi;
  scgi_temp_path FILES.scgi;
  upstream web {
    server BACKEND;
    keepalive 1024;
    keepalive_requests 100000000;
  }
  server {
    listen ADDRESS ` + listen + `;
    server_name HOST;
    location / {` + location + `}
  }
}
`
}

// nginxProxy passes requests over HTTP/1.1.
const nginxProxy = `
      proxy_pass http://web;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $host;
      proxy_set_header X-Forwarded-For $remote_addr;
`

// haproxyConfig has options of the socket and of the backend.
func haproxyConfig(bind, server string) string {
	return `global
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
  bind ADDRESS ` + bind + `
  acl here hdr(host) -i HOST
  use_backend web if here
backend web
  option forwardfor
  server web BACKEND ` + server + `
`
}

// haproxyTCP lets the kernel move octets where HAProxy finds it worthwhile.
const haproxyTCP = `global
  nbthread 1
  maxconn 1000
defaults
  mode tcp
  option splice-auto
  timeout connect 5s
  timeout client 300s
  timeout server 300s
listen front
  bind ADDRESS
  server web BACKEND
`

// entrant returns a contender of a group by its name.
func (b *bench) entrant(ctx context.Context, w *rig.Workshop, g *group, name string) (*entrant, error) {
	if name == reverse {
		tool, err := w.Tool(ctx, "gateway/reverse")
		command := func(listen, _ netip.AddrPort) (*exec.Cmd, error) {
			return exec.Command(tool, listen.String(), g.backend, g.setup[name]), nil
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
	e := &entrant{name: name, version: program.Version}
	e.command = func(listen, admin netip.AddrPort) (*exec.Cmd, error) {
		args := map[string][]string{
			portolan: {
				"gateway", "--listen", listen.Addr().String(), "--admin", admin.String(),
				"--port-offset", strconv.Itoa(int(listen.Port()) - 80), "--endpoint", "bench/web=" + g.backend, "--manifests",
			},
			caddy:   {"run", "--adapter", "caddyfile", "--config"},
			nginx:   {"-p", b.dir, "-c"},
			haproxy: {"-db", "-f"},
		}[name]
		text := strings.NewReplacer(
			"ADDRESS", listen.String(), "PORT", strconv.Itoa(int(listen.Port())), "HOST", host, "BACKEND", g.backend,
			"FILES", config, "PEM", b.certificate.file, "CERTIFICATE", b.certificate.chain, "KEY", b.certificate.key,
		).Replace(g.setup[name])
		return program.Command(append(args, config)...), os.WriteFile(config, []byte(text), 0o600)
	}
	return e, nil
}

// start starts a contender and waits until it passes requests.
func (b *bench) start(ctx context.Context, g *group, e *entrant) (*rig.Server, error) {
	c := &rig.Contender{
		Name: e.name, Log: b.file(e.name + ".log"), CPUs: []int{proxyCPU},
		Ready: func(_ context.Context, ports []netip.AddrPort) error {
			check := g.small
			if check.Connections == 0 {
				check = g.large
			}
			check.Target = ports[0]
			return check.Once()
		},
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

// startBackend starts a backend, a command of this folder, until stop is called.
func startBackend(ctx context.Context, w *rig.Workshop, command string) (address string, stop func(), err error) {
	tool, err := w.Tool(ctx, "gateway/"+command)
	if err != nil {
		return "", nil, err
	}
	cmd := exec.CommandContext(ctx, tool)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
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
		return "", nil, err
	}
	stop = func() {
		_ = cmd.Process.Kill()
		<-ended
	}
	address, err = bufio.NewReader(out).ReadString('\n')
	if err != nil {
		stop()
		return "", nil, errors.Join(errors.New("the backend prints no address"), err)
	}
	return strings.TrimSpace(address), stop, nil
}
