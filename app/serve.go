package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"outboard.dev/outboard/internal/cluster"
	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/filewatch"
	"outboard.dev/outboard/internal/server"
	"outboard.dev/outboard/internal/service"
)

func serveCommand(types config.Types) *cobra.Command {
	var file string
	var printConfig bool
	cmd := &cobra.Command{
		Use:   "serve --config FILE",
		Short: "Serve the calls of kube-scheduler",
		Long: `Serve the calls of kube-scheduler according to the configuration file. The service
reloads profiles and signals when the file changes: a valid change takes effect without
a restart, an invalid one is reported and changes nothing.`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return missing(cmd, "config")
			}
			c, err := config.Load(file, types)
			if err != nil {
				return service.Listed(err)
			}
			if printConfig {
				text, err := c.YAML()
				if err != nil {
					return err
				}
				_, err = cmd.OutOrStdout().Write(text)
				return err
			}
			return serve(cmd.Context(), file, c, types)
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration file (required)")
	cmd.Flags().BoolVar(&printConfig, "print-config", false, "print the configuration with its defaults, and exit")
	return cmd
}

// serve runs until ctx ends and every call has its response.
func serve(ctx context.Context, file string, c *config.Config, types config.Types) error {
	collectGarbage()
	logger := service.NewLogger(c.Log)
	slog.SetDefault(logger)
	if limit := limitMemory(memlimit.FromCgroup); limit > 0 {
		logger.Info("memory limit set from the cgroup", "bytes", limit)
	}
	klog.SetSlogLogger(logger.With("from", "client-go"))

	registry := NewRegistry()
	to, err := connect(c, registry, logger)
	if err != nil {
		return err
	}
	s, err := newServing(service.Options{File: file, Config: c, Types: types, Connection: to, Registry: registry, Logger: logger})
	if err != nil {
		return err
	}
	srv, err := server.New(s.serverOptions(c))
	if err != nil {
		return err
	}
	watcher, err := filewatch.New(filewatch.Options{
		Paths:    []string{file},
		OnChange: func(contents map[string][]byte) { s.Reload(contents[file]) },
		OnError:  s.ReloadFailed,
	})
	if err != nil {
		return err
	}
	logger.Info("starting", "version", running().module, "commit", running().commit, "config", file, "urls", s.routes.Load().urls())
	return run(ctx, srv, s, watcher)
}

// run follows the cluster, the signals and the configuration file as long as the server responds to
// calls, which is longer than ctx.
func run(ctx context.Context, srv *server.Server, s *serving, watcher *filewatch.Watcher) error {
	behind, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer stop()
		return srv.Run(ctx)
	})
	group.Go(func() error { return s.Run(behind) })
	group.Go(func() error {
		watcher.Run(behind)
		return nil
	})
	group.Go(func() error {
		if s.Cluster != nil {
			if s.Cluster.WaitForSync(behind) != nil {
				return nil
			}
			s.options.Logger.Info("read the cluster", "nodes", s.View().Len())
		}
		relaxCollector(behind, collections) // not before: reading the cluster produces garbage, and delays no call
		return nil
	})
	return group.Wait()
}

// connect returns the connection of the configuration. It makes no request.
func connect(c *config.Config, registry *prometheus.Registry, logger *slog.Logger) (service.Connection, error) {
	if !c.ClientConnection.Enabled {
		return service.Connection{}, nil
	}
	client, err := clientConfig(c.ClientConnection)
	if err != nil {
		return service.Connection{}, fmt.Errorf("%w (set clientConnection.kubeconfig, or clientConnection: {enabled: false})", err)
	}
	logger.Info("connecting to the cluster", "apiServer", client.Host)
	return service.Connect(c, cluster.Options{Config: client}, registry, logger)
}

// clientConfig returns the client configuration from the kubeconfig that is set, or else from the
// pod that this process runs in, or else from the kubeconfig of kubectl.
func clientConfig(c config.ClientConnection) (*rest.Config, error) {
	if c.Kubeconfig == "" && c.Context == "" {
		inCluster, err := rest.InClusterConfig()
		if err == nil {
			return named(inCluster), nil
		}
		if !errors.Is(err, rest.ErrNotInCluster) {
			return nil, fmt.Errorf("cluster: %w", err)
		}
	}
	kubeconfig := kubeconfigOf(c)
	found, err := kubeconfig.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, fmt.Errorf("cluster: no API server is configured: %s", without(kubeconfig.ConfigAccess().GetLoadingPrecedence()))
	}
	if err != nil {
		return nil, fmt.Errorf("cluster: no API server is configured: %w", err)
	}
	return named(found), nil
}

// without says why there is no cluster in the files, which are those of the environment variable
// KUBECONFIG, or that of kubectl.
func without(files []string) string {
	var why []string
	for _, file := range files {
		if _, err := os.Stat(file); err != nil {
			why = append(why, err.Error())
		} else {
			why = append(why, file+" has no cluster in its current context")
		}
	}
	return strings.Join(why, "; ")
}

// kubeconfigOf returns the kubeconfig that is set, or else that of kubectl.
func kubeconfigOf(c config.ClientConnection) clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.Kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: c.Context})
}

func named(client *rest.Config) *rest.Config {
	client.UserAgent = "outboard/" + running().module
	return client
}
