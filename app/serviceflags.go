package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"

	"github.com/spf13/cobra"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"outboard.dev/outboard/internal/replicas"
)

// serviceFlags are the flags with which a command reaches the running service: all its replicas in
// the cluster, or one admin address.
type serviceFlags struct {
	cluster   clusterFlags
	namespace string
	admin     adminAddress
	// local is the admin address of a replica in the pod in which the command runs.
	local adminAddress
}

func (s *serviceFlags) register(cmd *cobra.Command) {
	s.local = defaultAdmin
	s.cluster.register(cmd)
	outboardNamespaceFlag(cmd, &s.namespace)
	cmd.Flags().StringVar((*string)(&s.admin), "admin", os.Getenv(adminVariable), "read from this admin address only, instead of all replicas (default "+adminVariable+" of the environment; in a pod of Outboard, "+defaultAdmin+")")
}

// inReplica reports whether the replica in the same pod is read if it responds: its ServiceAccount
// may not forward ports to the others.
func (s *serviceFlags) inReplica(cmd *cobra.Command) bool {
	return os.Getenv("KUBERNETES_SERVICE_HOST") != "" && !s.cluster.given() && !cmd.Flags().Changed("outboard-namespace")
}

// warned passes the warnings of responses on.
type warned struct {
	http.RoundTripper
	handler rest.WarningHandler
}

func (w *warned) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := w.RoundTripper.RoundTrip(req)
	if err == nil {
		warnings, _ := utilnet.ParseWarningHeaders(res.Header["Warning"])
		for _, warning := range warnings {
			w.handler.HandleWarningHeader(warning.Code, warning.Agent, warning.Text)
		}
	}
	return res, err
}

// read reads from all replicas, or from the admin address. It returns the responses, of which there
// is at least one, and writes to standard error their warnings, and which replicas did not respond,
// and why. The replica of an admin address is "".
func read[T any](cmd *cobra.Command, s *serviceFlags, from replicas.Fetch[T]) ([]replicas.Response[T], error) {
	warnings := rest.NewWarningWriter(cmd.ErrOrStderr(), rest.WarningWriterOptions{Deduplicate: true})
	fetch := func(ctx context.Context, client *http.Client, admin string) (T, error) {
		return from(ctx, &http.Client{Timeout: client.Timeout, Transport: &warned{client.Transport, warnings}}, admin)
	}
	if s.admin != "" {
		value, err := fetch(cmd.Context(), adminClient(), s.admin.url())
		if err != nil {
			return nil, s.admin.failure(err)
		}
		return []replicas.Response[T]{{Value: value}}, nil
	}
	if s.inReplica(cmd) {
		value, err := fetch(cmd.Context(), adminClient(), s.local.url())
		if dial := (*net.OpError)(nil); !errors.As(err, &dial) || dial.Op != "dial" {
			if err != nil {
				return nil, fmt.Errorf("%w: --outboard-namespace reads from all replicas instead", s.local.failure(err))
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: from the replica in this pod only\n", cmd.Root().Name())
			return []replicas.Response[T]{{Value: value}}, nil
		}
	}
	client, err := clientConfig(s.cluster.ClientConnection)
	if err != nil {
		return nil, fmt.Errorf("%w (set --kubeconfig, or --admin for one service)", err)
	}
	found, err := replicas.Find(cmd.Context(), client, s.namespace)
	if err != nil {
		return nil, fmt.Errorf("%w: --outboard-namespace names the namespace of Outboard, and --admin one service", err)
	}
	responses, failed := replicas.Split(replicas.FetchAll(cmd.Context(), found, fetch))
	var failures []error
	for _, f := range failed {
		failures = append(failures, fmt.Errorf("replica %s: %s", f.Replica, replicas.Reason(f.Err)))
	}
	if len(responses) == 0 {
		return nil, fmt.Errorf("%w; --admin reads from one admin address instead, such as %s in a pod of Outboard:\n%w", replicas.ErrNoResponse, defaultAdmin, errors.Join(failures...))
	}
	for _, err := range failures {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: no response of %v\n", cmd.Root().Name(), err)
	}
	return responses, nil
}
