package interop

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/grpclog"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/orca"

	"portolan.dev/portolan/test/await"
)

// cases are those of the interoperability tests (doc/interop-test-descriptions.md of gRPC) that Go's client has, by
// their names there. Missing are those that need credentials of a cloud, pick_first_unary, as Go's server does not say
// which one it is, and orca_oob, whose server must report more often than package orca lets servers outside gRPC.
func cases(client *client) map[string]func(ctx context.Context) {
	of := func(do func(context.Context, testgrpc.TestServiceClient, ...grpc.CallOption)) func(context.Context) {
		return func(ctx context.Context) { do(ctx, client.service) }
	}
	return map[string]func(ctx context.Context){
		"empty_unary":                 of(interop.DoEmptyUnaryCall),
		"large_unary":                 of(interop.DoLargeUnaryCall),
		"client_streaming":            of(interop.DoClientStreaming),
		"server_streaming":            of(interop.DoServerStreaming),
		"ping_pong":                   of(interop.DoPingPong),
		"empty_stream":                of(interop.DoEmptyStream),
		"timeout_on_sleeping_server":  of(interop.DoTimeoutOnSleepingServer),
		"cancel_after_begin":          of(interop.DoCancelAfterBegin),
		"cancel_after_first_response": of(interop.DoCancelAfterFirstResponse),
		"status_code_and_message":     of(interop.DoStatusCodeAndMessage),
		"special_status_message":      of(interop.DoSpecialStatusMessage),
		"custom_metadata":             of(interop.DoCustomMetadata),
		"unimplemented_method":        func(ctx context.Context) { interop.DoUnimplementedMethod(ctx, client.conn) },
		"unimplemented_service": func(ctx context.Context) {
			interop.DoUnimplementedService(ctx, testgrpc.NewUnimplementedServiceClient(client.conn))
		},
		"orca_per_rpc": func(ctx context.Context) { interop.DoORCAPerRPCTest(ctx, client.service) },
		"rpc_soak": func(ctx context.Context) {
			interop.DoSoakTest(ctx, soak(func() (*grpc.ClientConn, func()) { return client.conn, func() {} }))
		},
		"channel_soak": func(ctx context.Context) { interop.DoSoakTest(ctx, soak(client.another)) },
	}
}

// soak returns the calls of a soak test, as many and as large as the client's flags say by default.
func soak(connection func() (*grpc.ClientConn, func())) interop.SoakTestConfig {
	return interop.SoakTestConfig{
		RequestSize: 271828, ResponseSize: 314159, Iterations: 10, NumWorkers: 1,
		PerIterationMaxAcceptableLatency: await.Answer, OverallTimeout: await.Patience, ChannelForTest: connection,
	}
}

// client is a client of the test service.
type client struct {
	target  string
	options []grpc.DialOption
	conn    *grpc.ClientConn
	service testgrpc.TestServiceClient
}

// newClient returns a client that connects with credentials to an address, and calls callsHost.
func newClient(t *testing.T, target string, with credentials.TransportCredentials) *client {
	t.Helper()
	c := &client{target: "passthrough:///" + target, options: []grpc.DialOption{
		grpc.WithTransportCredentials(with), grpc.WithAuthority(callsHost),
		// The balancer that hands reports of load to orca_per_rpc.
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"test_backend_metrics_load_balancer": {}}]}`),
	}}
	conn, err := grpc.NewClient(c.target, c.options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c.conn, c.service = conn, testgrpc.NewTestServiceClient(conn)
	return c
}

// another returns another connection, and what closes it.
func (c *client) another() (*grpc.ClientConn, func()) {
	conn, err := grpc.NewClient(c.target, c.options...)
	if err != nil {
		grpclog.Fatal(err)
	}
	return conn, func() { _ = conn.Close() }
}

// failure is what a case of gRPC says when it fails.
type failure string

// logger has cases panic with a failure where they would end the process. It implements grpclog.LoggerV2.
type logger struct{ grpclog.LoggerV2 }

func (logger) Fatal(args ...any)                 { panic(failure(fmt.Sprint(args...))) }
func (logger) Fatalln(args ...any)               { panic(failure(fmt.Sprint(args...))) }
func (logger) Fatalf(format string, args ...any) { panic(failure(fmt.Sprintf(format, args...))) }

// TestMain sets gRPC's logger, before anything uses it.
func TestMain(m *testing.M) {
	grpclog.SetLoggerV2(logger{grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard)})
	m.Run()
}

// TestGRPC runs gRPC's interoperability tests through the gateway: their client over TLS and without it, and their
// server without. Straight to the server they must pass, too.
func TestGRPC(t *testing.T) {
	t.Parallel()
	endpoint := serveCalls(t)
	g := startGateway(t, endpoint, endpoint)
	secure := credentials.NewClientTLSFromCert(g.certificate.Roots, callsHost)
	for way, client := range map[string]*client{
		"h2c":      newClient(t, g.plain(), insecure.NewCredentials()),
		"TLS":      newClient(t, g.tls(), secure),
		"straight": newClient(t, endpoint.String(), insecure.NewCredentials()),
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			await.NoError(t, func() error {
				_, err := client.service.EmptyCall(t.Context(), new(testgrpc.Empty))
				return err
			})
			for name, do := range cases(client) {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					if err := outcome(t.Context(), do); err != "" {
						t.Error(err)
					}
				})
			}
		})
	}
}

// outcome runs a case, and returns why it failed; empty if it did not.
func outcome(ctx context.Context, do func(ctx context.Context)) (reason failure) {
	defer func() {
		var failed bool
		if v := recover(); v != nil {
			if reason, failed = v.(failure); !failed {
				panic(v)
			}
		}
	}()
	ctx, stop := context.WithTimeout(ctx, await.Patience)
	defer stop()
	do(ctx)
	return ""
}

// serveCalls starts gRPC's test server.
func serveCalls(t *testing.T) net.Addr {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(orca.CallMetricsServerOption(nil))
	testgrpc.RegisterTestServiceServer(server, interop.NewTestServer())
	go func() { _ = server.Serve(l) }() // until it is stopped
	t.Cleanup(server.Stop)
	return l.Addr()
}
