package app

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := io.WriteString(cmd.OutOrStdout(), versionLine())
			return err
		},
	}
}

func versionLine() string {
	return fmt.Sprintf("outboard %s, built with %s for %s/%s\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// version is the module version the binary was built from, or its revision.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(unknown)"
	}
	if info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return "(devel)"
}

// NewRegistry returns a registry with the metrics of the process, and of what runs in it.
func NewRegistry() *prometheus.Registry {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "outboard_build_info", Help: "1, with the running version as a label.",
		ConstLabels: prometheus.Labels{"version": version(), "goversion": runtime.Version()},
	})
	info.Set(1)
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), info)
	return registry
}
