package gatewaystatus

import (
	"context"
	"fmt"
	"log/slog"

	"portolan.dev/portolan/internal/kube/api"
	"portolan.dev/portolan/internal/kube/leader"
)

// Lead returns what calls work while this process leads, by a Lease, until its ctx is done (status.Config). The Lease
// has a client of its own, so that renewals do not wait for other writes.
func Lead(
	client api.ClientConfig,
	namespace, name string,
	log *slog.Logger,
) (func(ctx context.Context, work func(context.Context) error) error, error) {
	client.Timeout = timeout
	own, err := api.NewClient(client)
	if err != nil {
		return nil, err
	}
	election, err := leader.New(leader.Config{
		Client: own, Namespace: namespace, Name: name, LeaseDuration: leader.DefaultLeaseDuration,
		RenewDeadline: leader.DefaultRenewDeadline, RetryPeriod: leader.DefaultRetryPeriod, Log: log,
	})
	if err != nil {
		return nil, fmt.Errorf("gateway.lease: %w", err)
	}
	return func(ctx context.Context, work func(context.Context) error) error {
		return election.Always(api.WithDebugLog(ctx, log), work)
	}, nil
}
