package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"portolan.dev/portolan/internal/dns/dnswire"
	"portolan.dev/portolan/internal/dns/respond"
	"portolan.dev/portolan/test/await"
	"portolan.dev/portolan/test/e2e/process"
	"portolan.dev/portolan/test/program"
)

// repository is the directory of Portolan's own module.
const repository = "../.."

// binary builds portolan with the race detector.
var binary = sync.OnceValues(func() (string, error) {
	return program.Build(context.Background(), program.Options{Flags: []string{"-race"}})
})

// portolan is the real program, serving.
type portolan struct {
	process.Process
	t    *testing.T
	addr string
	dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// startPortolan serves the cluster of a kubeconfig file. At the end of the test
// it must still run, and end as it is told to, without a data race.
func startPortolan(t *testing.T, kubeconfig, config string) *portolan {
	t.Helper()
	file, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	configFile := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(configFile, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &portolan{t: t, dial: new(net.Dialer).DialContext}
	p.Path, p.Log = file, filepath.Join(dir, "log")
	p.Args = []string{"serve", "--kubeconfig", kubeconfig, "--config", configFile, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.end)
	p.addr = p.waitLog(`msg=serving listen=\[?(127\.0\.0\.1:\d+)`)[1]
	return p
}

func (p *portolan) end() {
	p.Stop(await.Patience)
	if code := p.State().ExitCode(); code != 0 || strings.Contains(p.Logged(), "DATA RACE") {
		p.t.Errorf("portolan: %s, want exit status 0 and no data race", p.State())
	}
	if p.t.Failed() {
		p.t.Logf("log of portolan:\n%s", p.LastLogged())
	}
}

// waitLog waits until the log matches, and gives what the groups matched.
func (p *portolan) waitLog(pattern string) (match []string) {
	p.t.Helper()
	re := regexp.MustCompile(pattern)
	await.NoError(p.t, func() error {
		if match = re.FindStringSubmatch(p.Logged()); match != nil {
			return nil
		}
		return fmt.Errorf("the log does not match %s", pattern)
	})
	return match
}

// query is a question and the answer that it must have: the data of its
// records, or none when the name does not exist.
type query struct {
	name   string
	qtype  dnswire.Type
	answer []string
}

func hasAddress(name string, addresses ...string) query {
	return query{name, dnswire.TypeA, addresses}
}

func isAbsent(name string) query { return query{name, dnswire.TypeA, nil} }

// check asks over UDP, and says what is wrong with the answer.
func (p *portolan) check(q query) error { return p.checkOver("udp", q) }

func (p *portolan) checkOver(network string, q query) error {
	m, err := p.askOver(network, q)
	if err != nil {
		return fmt.Errorf("%s: %w", q.name, err)
	}
	status := "NOERROR"
	if q.answer == nil {
		status = "NXDOMAIN"
	}
	var got []string
	for _, r := range m.Answer {
		got = append(got, r.Data)
	}
	slices.Sort(got)
	if m.Status != status || !slices.Equal(got, q.answer) {
		return fmt.Errorf("%s: answer:\n%swant %s %q", q.name, m, status, q.answer)
	}
	return nil
}

// await waits until all answers are as they must be.
func (p *portolan) await(queries ...query) {
	p.t.Helper()
	for _, q := range queries {
		await.NoError(p.t, func() error { return p.check(q) })
	}
}

func (p *portolan) ask(q query) (*dnswire.Message, error) { return p.askOver("udp", q) }

func (p *portolan) askOver(network string, q query) (*dnswire.Message, error) {
	packet, err := dnswire.NewQuery(dnswire.QuerySpec{Name: q.name, Type: q.qtype, UDPSize: respond.DefaultUDPSize, Flags: dnswire.FlagRD})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.t.Context()), await.Answer)
	defer cancel()
	conn, err := p.dial(ctx, network, p.addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(await.Answer)); err != nil {
		return nil, err
	}
	buf := make([]byte, 2+dnswire.MaxMessage)
	if network == "tcp" { // RFC 1035, section 4.2.2: the length comes first
		if _, err := conn.Write(append([]byte{byte(len(packet) >> 8), byte(len(packet))}, packet...)); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(conn, buf[:2]); err != nil {
			return nil, err
		}
		buf = buf[:int(buf[0])<<8|int(buf[1])]
		if _, err := io.ReadFull(conn, buf); err != nil {
			return nil, err
		}
		return dnswire.ParseMessage(buf)
	}
	if _, err := conn.Write(packet); err != nil {
		return nil, err
	}
	n, err := conn.Read(buf)
	if err != nil {
		return nil, err
	}
	return dnswire.ParseMessage(buf[:n])
}

// steady asks the same questions over and over until the test ends. One wrong
// answer fails the test.
func (p *portolan) steady(queries []query) {
	p.await(queries...)
	ctx, cancel := context.WithCancel(p.t.Context())
	done := make(chan struct{})
	asked := 0
	var wrong []error
	go func() {
		defer close(done)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			for _, q := range queries {
				if err := p.check(q); err != nil {
					wrong = append(wrong, fmt.Errorf("%s: %w", time.Now().Format(time.RFC3339Nano), err))
				}
				asked++
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	p.t.Cleanup(func() {
		cancel()
		<-done
		if len(wrong) > 0 {
			p.t.Errorf("%d of %d answers about what was there all the time are wrong; the first: %v", len(wrong), asked, errors.Join(wrong[:min(3, len(wrong))]...))
		}
		p.t.Logf("asked %d times for what was there all the time", asked)
	})
}
