package app

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/service"
	"outboard.dev/outboard/internal/wiring/doctor"
)

// wiringOptions are the flags of check about kube-scheduler's configuration.
type wiringOptions struct {
	scheduler, namespace, version string
	connection                    clusterFlags
	cluster, fromNamespace        bool
}

func (o *wiringOptions) register(cmd *cobra.Command) {
	o.connection.register(cmd)
	outboardNamespaceFlag(cmd, &o.namespace)
	flags := cmd.Flags()
	flags.StringVar(&o.scheduler, "scheduler", "", "kube-scheduler's configuration, alone or in a manifest; - is standard input")
	flags.BoolVar(&o.cluster, "cluster", false, "read the cluster, too; --kubeconfig, --context and --outboard-namespace imply it")
	flags.StringVar(&o.version, "kubernetes-version", "", "the version of kube-scheduler, such as 1.37 (default that of the cluster, if it is read)")
}

// given reports whether the flags ask for a report about kube-scheduler's configuration.
func (o *wiringOptions) given(cmd *cobra.Command) bool {
	named := cmd.Flags().Changed("outboard-namespace")
	o.cluster = o.cluster || o.connection.given() || named
	o.fromNamespace = o.cluster && (o.scheduler == "" || named)
	return o.scheduler != "" || o.cluster
}

// input reads the files, and the cluster if a flag selects it. file, which may be "", is the
// configuration of Outboard.
func (o *wiringOptions) input(ctx context.Context, file string, stdin io.Reader, types config.Types) (doctor.Input, error) {
	in := doctor.Input{Types: types, ConfigFile: file, Version: o.version, ReadFile: os.ReadFile, ReadConfigFile: os.ReadFile, Now: time.Now()}
	var err error
	if o.scheduler != "" {
		if in.File, in.Data, err = readInput(o.scheduler, stdin); err != nil {
			return in, err
		}
	}
	if file != "" {
		types.Unserved = types.Unserved || o.scheduler != "" && in.PluginOnly()
		if in.Config, err = readConfig(file, stdin, types); err != nil {
			return in, err
		}
	}
	if o.cluster {
		namespace := ""
		if o.fromNamespace {
			namespace = o.namespace
		}
		if in.Cluster, err = readForDoctor(ctx, o.connection.ClientConnection, namespace); err != nil {
			return in, err
		}
	}
	if o.fromNamespace {
		err = service.Listed(in.FromNamespace(o.namespace, types))
	}
	return in, err
}

// judge reports to out what is wrong with kube-scheduler's configuration and the cluster.
func judge(in doctor.Input, output *outputFlag, out io.Writer) error {
	findings, omissions, err := doctor.Check(in)
	if err != nil {
		return err
	}
	err = output.write(out, inJSON(struct {
		Findings   []doctor.Finding  `json:"findings"`
		NotChecked []doctor.Omission `json:"notChecked"`
	}{append([]doctor.Finding{}, findings...), append([]doctor.Omission{}, omissions...)}),
		func(w io.Writer) error { return diagnosis(w, findings, omissions) })
	if err == nil && count(findings, doctor.Error) > 0 {
		err = errFindings
	}
	return err
}

func count(findings []doctor.Finding, severity doctor.Severity) (n int) {
	for _, f := range findings {
		if f.Severity == severity {
			n++
		}
	}
	return n
}

// diagnosis writes the findings as text, how many there are, and what is not checked.
func diagnosis(w io.Writer, findings []doctor.Finding, omissions []doctor.Omission) error {
	var b strings.Builder
	for i := range findings {
		b.WriteString(findings[i].Text())
	}
	fmt.Fprintf(&b, "errors: %d, warnings: %d, notes: %d\n", count(findings, doctor.Error), count(findings, doctor.Warning), count(findings, doctor.Note))
	b.WriteString(doctor.OmissionsText(omissions))
	_, err := io.WriteString(w, b.String())
	return err
}
