package app

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
)

func versionCommand() *cobra.Command {
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := output.check(); err != nil {
				return err
			}
			v := running()
			built := struct {
				Version   string `json:"version"`
				Commit    string `json:"commit"`
				GoVersion string `json:"goVersion"`
				Platform  string `json:"platform"`
			}{v.module, v.commit, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			return output.write(cmd.OutOrStdout(), inJSON(built), func(w io.Writer) error {
				_, err := io.WriteString(w, versionLine())
				return err
			})
		},
	}
	output.register(cmd)
	return cmd
}

func versionLine() string {
	v := running()
	return fmt.Sprintf("outboard %s, commit %s, built with %s for %s/%s\n", v.module, v.commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// version is what a binary was built from.
type version struct {
	// module is the version of the module as the go command names it, such as v1.2.3, or a
	// pseudo-version of the commit. It ends with +dirty if the checkout had changes. It is
	// "(devel)" if the go command found no repository.
	module string
	// commit is the commit of the checkout; "(unknown)" outside of a checkout, as for go install of
	// a version.
	commit string
}

// running returns the version of this binary.
func running() version {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = new(debug.BuildInfo)
	}
	return versionOf(info)
}

func versionOf(info *debug.BuildInfo) version {
	v := version{cmp.Or(info.Main.Version, "(devel)"), "(unknown)"}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.commit = s.Value
		}
	}
	return v
}

// NewRegistry returns a registry with the metrics of the process, and of what runs in it.
func NewRegistry() *prometheus.Registry {
	v := running()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "outboard_build_info", Help: "1, with the running version and its commit as labels.",
		ConstLabels: prometheus.Labels{"version": v.module, "revision": v.commit, "goversion": runtime.Version()},
	})
	info.Set(1)
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), info)
	return registry
}
