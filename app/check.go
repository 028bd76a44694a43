package app

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/service"
	"outboard.dev/outboard/internal/wiring"
	"outboard.dev/outboard/internal/wiring/doctor"
)

func checkCommand(types config.Types) *cobra.Command {
	var output outputFlag
	var against string
	var schema bool
	var wiring wiringOptions
	cmd := &cobra.Command{
		Use:        "check [FILE]",
		SuggestFor: []string{"validate", "lint", "doctor", "status"},
		Short:      "Check a configuration file, kube-scheduler's configuration, and the cluster",
		Long: `Load a configuration file as serve does, and report all errors. For each profile of a valid
file, print its policies, for which pods they are, and what happens to these pods while Outboard
does not respond. FILE may also be a manifest with a ConfigMap that holds the configuration, and
- is standard input. --against compares the file with the one that is in use: it prints the
changes, and their risks.

--scheduler reports instead what is wrong with the extenders and Outboard's plugin in
kube-scheduler's configuration, and with FILE what does not go with the configuration of
Outboard. --cluster also reads nodes, pods, ResourceSlices, Services and endpoints. Without
--scheduler, --cluster reads both configurations and their certificates from what the Deployments
in --outboard-namespace mount. Each finding says what to write.
The command changes nothing, and ends with what it did not check.

The exit status is 1 if FILE is not valid, if --against finds risks or changes that require a
restart, or if there are findings of severity ERROR.`,
		Example: `  outboard check outboard.yaml
  outboard check outboard.yaml --against running.yaml
  outboard check outboard.yaml --scheduler scheduler.yaml
  outboard check --cluster -o json
  outboard check --schema > outboard.schema.json`,
		Args: positional("[FILE]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := output.check(); err != nil {
				return err
			}
			file := strings.Join(args, "")
			stdin := 0
			for _, name := range []string{file, against, wiring.scheduler} {
				if name == "-" {
					stdin++
				}
			}
			judges := wiring.given(cmd)
			switch {
			case schema:
				return writeSchema(cmd.OutOrStdout(), types)
			case file == "" && (against != "" || !judges):
				return fmt.Errorf("FILE is missing: usage: %s", cmd.UseLine())
			case stdin > 1:
				return errors.New("only one of FILE, --against and --scheduler can be standard input")
			case judges && against != "":
				return errors.New("--against compares FILE only: leave it out with --scheduler and --cluster")
			case judges:
				in, err := wiring.input(cmd.Context(), file, cmd.InOrStdin(), types)
				if err != nil {
					return err
				}
				return judge(in, &output, cmd.OutOrStdout())
			}
			name, c, err := check(file, cmd.InOrStdin(), types)
			report := checked{Valid: err == nil, file: name, against: against}
			if errs := (config.Errors)(nil); errors.As(err, &errs) {
				report.Errors = fileErrors(errs)
			} else if err != nil {
				return err
			}
			if c != nil {
				report.Warnings = fileErrors(c.Warnings)
				report.list(c)
				if err := report.compare(c, cmd.InOrStdin(), types); err != nil {
					return err
				}
			}
			err = output.write(cmd.OutOrStdout(), inJSON(report), report.text)
			if err == nil && (!report.Valid || len(report.Risks) > 0) {
				err = errFindings
			}
			return err
		},
	}
	wiring.register(cmd)
	output.register(cmd)
	flags := cmd.Flags()
	flags.StringVar(&against, "against", "", "the configuration file in use, to compare FILE with; - is standard input")
	flags.BoolVar(&schema, "schema", false, "print the JSON Schema of configuration files, for editors")
	return cmd
}

// check loads the file, or standard input if the file is "-", and makes the engines of its
// profiles. name is what errors call it.
func check(file string, stdin io.Reader, types config.Types) (name string, c *config.Config, err error) {
	name, data, err := readInput(file, stdin)
	if err != nil {
		return name, nil, fmt.Errorf("configuration file: %w", err)
	}
	if c, err = config.ParseManifest(name, data, types); err != nil {
		return name, nil, err
	}
	for i := range c.Profiles {
		if _, err := service.EngineOf(c, &c.Profiles[i], nil); err != nil {
			return name, nil, config.Errors{{File: name, Rule: err.Error()}}
		}
	}
	return name, c, nil
}

// checked is the report about a configuration file.
type checked struct {
	Valid    bool        `json:"valid"`
	Errors   []fileError `json:"errors,omitempty"`
	Warnings []fileError `json:"warnings,omitempty"`
	// Profiles and Signals are those of a valid file.
	Profiles          []checkedProfile `json:"profiles,omitempty"`
	Signals           []checkedSignal  `json:"signals,omitempty"`
	config.Comparison                  // with --against
	// SeveralSchedulers says why no kube-scheduler accepts extenders for all profiles, and what to
	// do. "": one does.
	SeveralSchedulers string `json:"severalSchedulers,omitempty"`
	// NotChecked is what only a process that serves the configuration can check.
	NotChecked []doctor.Omission `json:"notChecked,omitempty"`

	file, against string // the names of the files; against is "" without --against
}

// checkedProfile is a profile with the names of its policies.
type checkedProfile struct {
	Path     string   `json:"path"`
	Policies []string `json:"policies"`
	// ManagedResources are the names of the resources of which a pod requests one if the profile is
	// for the pod. None: it is for every pod.
	ManagedResources []string `json:"managedResources,omitempty"`
	// Strict is true if the pods stay pending while Outboard does not respond, with the extender of
	// setup scheduler.
	Strict bool `json:"strict"`

	pods string // for which pods the profile is
	why  string // why it is strict or not
}

// checkedSignal is a signal with its type of source.
type checkedSignal struct {
	Name   string `json:"name"`
	Source string `json:"source"`
}

// list adds the profiles and signals of the valid configuration.
func (r *checked) list(c *config.Config) {
	for _, p := range c.Profiles {
		var names, resources []string
		for _, policy := range p.Policies {
			names = append(names, policy.Name)
		}
		for _, resource := range p.ManagedResources {
			resources = append(resources, resource.Name)
		}
		strict, why := wiring.Strictness(&p)
		r.Profiles = append(r.Profiles, checkedProfile{p.Path, names, resources, strict, p.Pods(), why})
	}
	if err := wiring.OneScheduler(c); err != nil {
		r.SeveralSchedulers = err.Error()
	}
	for i := range c.Signals {
		r.Signals = append(r.Signals, checkedSignal{c.Signals[i].Name, c.Signals[i].Type.Name})
		r.NotChecked = append(r.NotChecked, doctor.Omission{What: "the source of the signal " + c.Signals[i].Name, Why: "outboard serve reads it: /readyz and the page show whether it can"})
	}
	if c.Serving.TLS != nil {
		r.NotChecked = append(r.NotChecked, doctor.Omission{What: "the files of serving.tls", Why: "outboard serve does not start without them; outboard check --scheduler checks them with those of kube-scheduler"})
	}
}

// compare adds the changes from the file in use to c.
func (r *checked) compare(c *config.Config, stdin io.Reader, types config.Types) error {
	if r.against == "" {
		return nil
	}
	name, old, err := check(r.against, stdin, types)
	if err != nil {
		return fmt.Errorf("--against %s: %w", name, service.Listed(err))
	}
	r.Comparison = config.Compare(old, c, config.Observed{})
	return nil
}

// fileError is an error or a warning about a position in a file.
type fileError struct {
	File string `json:"file"`
	// Line is from 1; 0 is the file as a whole.
	Line  int    `json:"line,omitempty"`
	Field string `json:"field,omitempty"`
	// Message says what is wrong, without the position.
	Message string `json:"message"`

	text string // the whole line
}

func fileErrors(errs config.Errors) []fileError {
	var all []fileError
	for _, e := range errs {
		all = append(all, fileError{e.File, e.Line, e.Path, e.Message(), e.Error()})
	}
	return all
}

// text writes a line for each error and warning, profile and signal.
func (r *checked) text(w io.Writer) error {
	var b strings.Builder
	for _, e := range r.Errors {
		fmt.Fprintln(&b, e.text)
	}
	for _, e := range r.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", e.text)
	}
	if r.Valid {
		fmt.Fprintf(&b, "%s is valid.\n", r.file)
		for _, p := range r.Profiles {
			fmt.Fprintf(&b, "profile %s: %s; for %s\n  %s\n", p.Path, strings.Join(p.Policies, ", "), p.pods, p.why)
		}
		if r.SeveralSchedulers != "" {
			fmt.Fprintf(&b, "note: %s\n", r.SeveralSchedulers)
		}
		for _, s := range r.Signals {
			fmt.Fprintf(&b, "signal %s: %s\n", s.Name, s.Source)
		}
		if r.against != "" && len(r.Changes) == 0 {
			fmt.Fprintf(&b, "%s has the same configuration.\n", r.against)
		}
	}
	for _, change := range r.Changes {
		fmt.Fprintf(&b, "change: %s\n", change)
	}
	for _, risk := range r.Risks {
		fmt.Fprintf(&b, "risk: %s\n", risk)
	}
	b.WriteString(doctor.OmissionsText(r.NotChecked))
	_, err := io.WriteString(w, b.String())
	return err
}
