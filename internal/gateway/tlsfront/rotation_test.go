package tlsfront_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/gateway/compile"
	"portolan.dev/portolan/internal/gateway/proxy"
	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/gateway/tlsfront"
	"portolan.dev/portolan/internal/support/testcert"
)

// front is a Front whose table is compiled from a Store, with a listener for handshakes.
type front struct {
	*testing.T
	store    *cluster.Store
	feed     *cluster.Feed
	compiler *compile.Compiler
	proxy    *proxy.Proxy
	addr     string
	roots    *x509.CertPool
}

func newFront(t *testing.T) *front {
	t.Helper()
	f := &front{
		T: t, store: cluster.NewStore(), compiler: compile.NewCompiler(compile.Config{GatewayController: "test/gateway"}),
		proxy: proxy.New(proxy.Config{}), roots: x509.NewCertPool(),
	}
	t.Cleanup(f.proxy.Close)
	f.feed = f.store.Subscribe()
	config := tlsfront.New(tlsfront.Config{Table: f.proxy.Table}).At(table.Socket{Port: 443})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	f.addr = l.Addr().String()
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			raw, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer raw.Close()
				_ = raw.SetDeadline(time.Now().Add(time.Minute))
				_ = tls.Server(raw, config()).Handshake() // the client sees why it fails
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		serving.Wait()
	})
	return f
}

// put puts objects into the Store, and has the table have them.
func (f *front) put(objects ...cluster.Object) {
	f.store.Update(func(tx *cluster.Tx) {
		for _, o := range objects {
			tx.Put(o)
		}
		tx.SetFreshness(cluster.Live, cluster.Kinds()...)
	})
	changes := f.feed.Pending()
	f.store.View(func(v *cluster.View) { f.proxy.SetTable(f.compiler.Apply(v, &changes).Table) })
}

// secret returns a Secret with a new certificate for its name.
func (f *front) secret(name string) *cluster.Secret {
	f.Helper()
	made, err := testcert.New(name, time.Now().Add(time.Hour))
	must(f.T, err)
	certificate, key := made.PEM()
	f.roots.AppendCertsFromPEM(certificate)
	return &cluster.Secret{
		Key: cluster.Key{Namespace: "shop", Name: name}, Type: "kubernetes.io/tls",
		Data: map[string]cluster.Confidential{"tls.crt": certificate, "tls.key": key},
	}
}

// gateway returns a Gateway with a listener for each name, which has the Secret of the name.
func (f *front) gateway(names []string) []cluster.Object {
	spec := &cluster.GatewaySpec{Class: "ours"}
	for _, name := range names {
		certificate := cluster.ObjectRef{Kind: "Secret", Namespace: "shop", Name: name}
		spec.Listeners = append(spec.Listeners, cluster.Listener{
			Name: name, Hostname: name, Port: 443, Protocol: cluster.HTTPSProtocol,
			TLS: &cluster.ListenerTLS{Mode: cluster.TLSTerminate, Certificates: []cluster.ObjectRef{certificate}},
		})
	}
	return []cluster.Object{
		&cluster.GatewayClass{Name: "ours", Controller: "test/gateway"}, &cluster.Namespace{Name: "shop"},
		&cluster.Frontend{Kind: cluster.KindGateway, Key: cluster.Key{Namespace: "shop", Name: "g"}, Gateway: spec},
	}
}

// whileRotating has clients shake hands, for one name after the other, while it rotates certificates one by one, each
// when another handshake is complete. None may fail.
func (f *front) whileRotating(names []string, rotations int, rotate func(i int)) {
	f.Helper()
	var done atomic.Bool
	var shaken atomic.Int64
	var clients sync.WaitGroup
	for n := range 4 {
		clients.Go(func() {
			for i := n; !done.Load(); i++ {
				name := names[i%len(names)]
				conn, err := tls.Dial("tcp", f.addr, &tls.Config{RootCAs: f.roots, ServerName: name, MinVersion: tls.VersionTLS12})
				if err != nil {
					f.Errorf("a handshake for %s: %v", name, err)
					return
				}
				conn.Close()
				shaken.Add(1)
			}
		})
	}
	for i := range rotations {
		rotate(i)
		for before := shaken.Load(); shaken.Load() == before && !f.Failed(); {
			time.Sleep(100 * time.Microsecond)
		}
	}
	done.Store(true)
	clients.Wait()
	f.Logf("%d handshakes", shaken.Load())
}

// TestRotationUnderLoad rotates one Secret 1,000 times, and 1,000 Secrets once, while clients shake hands.
func TestRotationUnderLoad(t *testing.T) {
	t.Parallel()
	many := 1000
	if testing.Short() {
		many = 100
	}
	t.Run("one Secret", func(t *testing.T) {
		t.Parallel()
		f := newFront(t)
		versions := []*cluster.Secret{f.secret("a.test"), f.secret("a.test")}
		f.put(append(f.gateway([]string{"a.test"}), versions[0])...)
		f.whileRotating([]string{"a.test"}, many, func(i int) { f.put(versions[(i+1)%2]) })
	})
	t.Run("many Secrets", func(t *testing.T) {
		t.Parallel()
		f := newFront(t)
		var names []string
		var now, next []cluster.Object
		for i := range many {
			name := fmt.Sprintf("n%d.test", i)
			names = append(names, name)
			now, next = append(now, f.secret(name)), append(next, f.secret(name))
		}
		f.put(append(f.gateway(names), now...)...)
		f.whileRotating(names, many, func(i int) { f.put(next[i]) })
	})
}
