package policy

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
)

// port is where Pods listen.
const port = 5000

// TestPodStarts has Pods start that send from their first instant, and get packets from before it. For
// each tenth of them the agent is killed and started again, before its ADD and during it by turns. No
// packet may pass that a policy forbids, and after ADD no connection may fail that one allows. Addresses
// are used again at once. The variable STARTS is how many Pods start.
func TestPodStarts(t *testing.T) {
	w := onNode(t)
	if w == nil {
		return
	}
	starts := number(t, "STARTS", 40)
	w.API.Put(policy("jobs", networkingv1.NetworkPolicySpec{
		PodSelector: ofApp("job"),
		Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: peer("server")}},
		Egress:      []networkingv1.NetworkPolicyEgressRule{{To: peer("server")}},
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
	}))
	server := w.launch(t, "server", app("server"), "10.244.1.250")
	sink := w.launch(t, "sink", app("sink"), "10.244.1.251")
	attacker := w.launch(t, "attacker", app("attacker"), "10.244.1.252")
	got := count(listenUDP(t, server, port), netip.Addr{})
	leaked := count(listenUDP(t, sink, port), netip.Addr{})
	serve(t, server)

	pool := make(chan netip.Addr, 8)
	var targets []netip.AddrPort
	for i := range cap(pool) {
		addr := netip.AddrFrom4([4]byte{10, 244, 1, byte(10 + i)})
		targets = append(targets, netip.AddrPortFrom(addr, port))
		pool <- addr
	}
	stop := send(listenUDP(t, attacker, 0), targets...)
	defer stop()

	var intruded, refused, done atomic.Int64
	var mu sync.Mutex
	var times []time.Duration
	attempts := 0 // of ADD
	var restarts sync.Mutex
	restart := func() {
		restarts.Lock()
		defer restarts.Unlock()
		w.Stop()
		w.Start(t)
	}
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for i := int(done.Add(1)); i <= starts; i = int(done.Add(1)) {
				t.Run(strconv.Itoa(i), func(t *testing.T) {
					addr := <-pool
					defer func() { pool <- addr }()
					p := w.newPod("job-"+strconv.Itoa(i), app("job"), addr)
					w.Attach(t, p)
					in := count(listenUDP(t, p, port), attacker.Addr())
					stop := send(listenUDP(t, p, 0), netip.AddrPortFrom(server.Addr(), port), netip.AddrPortFrom(sink.Addr(), port))
					var restarted sync.WaitGroup
					defer restarted.Wait()
					if i%10 == 0 {
						restarted.Go(func() {
							time.Sleep(time.Duration(i/10%8) * time.Millisecond) // an ADD takes some 5 ms
							restart()
						})
					}
					calls, took := w.Add(t, p)
					if err := connect(p, netip.AddrPortFrom(server.Addr(), port)); err != nil {
						t.Errorf("an allowed connection after ADD: %v", err)
						refused.Add(1)
					}
					err := dial(p, netip.AddrPortFrom(sink.Addr(), port))
					if !timedOut(err) {
						t.Errorf("a forbidden connection after ADD: %v, want a timeout", err)
					}
					w.Run(p)
					stop()
					w.Remove(t, p)
					intruded.Add(in.Load())
					mu.Lock()
					defer mu.Unlock()
					times = append(times, took)
					attempts += calls
				})
			}
		})
	}
	workers.Wait()
	if n := leaked.Load(); n > 0 {
		t.Errorf("%d forbidden packets left Pods that start", n)
	}
	if n := intruded.Load(); n > 0 {
		t.Errorf("%d forbidden packets reached Pods that start", n)
	}
	if got.Load() == 0 {
		t.Error("no allowed packet arrived")
	}
	slices.Sort(times)
	t.Logf("%d starts, in %d of which the agent was killed; %d calls of ADD, of which %d failed while it was away; "+
		"those that succeeded took p50 %v, p99 %v; %d allowed packets",
		starts, starts/10, attempts, attempts-len(times), times[len(times)/2], times[len(times)*99/100], got.Load())
}

// count counts the packets that a socket gets, from an address if it is valid.
func count(conn *net.UDPConn, from netip.Addr) *atomic.Int64 {
	n := new(atomic.Int64)
	go func() {
		buf := make([]byte, 16)
		for {
			_, sender, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			if !from.IsValid() || sender.Addr().Unmap() == from {
				n.Add(1)
			}
		}
	}()
	return n
}

// send sends packets to addresses, again and again, until it is told to stop.
func send(conn *net.UDPConn, to ...netip.AddrPort) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			for _, addr := range to {
				_, _ = conn.WriteToUDPAddrPort([]byte("?"), addr) // it may be out of reach
			}
			select {
			case <-end:
				return
			case <-time.After(200 * time.Microsecond):
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}

// serve accepts TCP connections in a Pod.
func serve(t *testing.T, p *pod) {
	t.Helper()
	must(t, p.Network.Do(func() error {
		l, err := net.Listen("tcp", ":"+strconv.Itoa(port)) // of both families
		if err != nil {
			return err
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				conn.Close()
			}
		}()
		return nil
	}))
}
