package app

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"outboard.dev/outboard/internal/simulate"
)

// arriving returns the pods that the simulation places.
func (o *simulateOptions) arriving(s *stage) []simulate.Job {
	switch {
	case o.countFitting != "":
		return []simulate.Job{s.like}
	case o.listPods && s.plan.Again && !o.startEmpty:
		return s.plan.Pending // and no copies of those that run
	}
	return slices.Concat(s.plan.Pending, s.plan.Mix)
}

// readLike reads the pod of --count-fitting, and claims in its file.
func (o *simulateOptions) readLike(s *stage) error {
	file, err := readNamed(o.countFitting)
	if err != nil {
		return err
	}
	if len(file.Pods) != 1 {
		return fmt.Errorf("%s has %d pods: must be 1", o.countFitting, len(file.Pods))
	}
	s.like = simulate.Again(file.Pods)[0]
	s.world.Devices.Add(&file.Devices)
	return nil
}

// howMany counts how many more pods fit, and says why the next one does not.
func (o *simulateOptions) howMany(cmd *cobra.Command, s *stage, name string) error {
	like := s.like.Pod
	count, reasons, err := s.world.HowMany(cmd.Context(), like, maxFitting, o.seed)
	if err != nil {
		return err
	}
	beside := ""
	if n := len(s.plan.Pending); n > 0 {
		beside = fmt.Sprintf(" (without placing the pending pods first: %d)", n)
	}
	pods, fit := "pods", "fit"
	if count == 1 {
		pods, fit = "pod", "fits"
	}
	why := ""
	if len(reasons) > 0 {
		texts := make([]string, len(reasons))
		for i, reason := range reasons {
			texts[i] = fmt.Sprintf("%d %s", reason.Nodes, reason.Text)
		}
		why = "  the next one fits on no node: " + strings.Join(texts, ", ") + "\n"
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %d more %s like %s/%s %s%s\n%s", name, count, pods, like.Namespace, like.Name, fit, beside, why)
	return err
}

// list places the pods with each configuration, and writes where they are.
func (o *simulateOptions) list(cmd *cobra.Command, s *stage, worlds []simulate.World, names []string) error {
	type configuration struct {
		Name string               `json:"name"`
		Pods []simulate.Placement `json:"pods"`
	}
	var all []configuration
	for i := range worlds {
		worlds[i].Pending = nil // they are among those that arrive
		placements, err := worlds[i].Place(cmd.Context(), o.arriving(s), o.seed)
		if err != nil {
			return err
		}
		all = append(all, configuration{names[i], placements})
	}
	output := outputFlag{format: o.output}
	return output.write(cmd.OutOrStdout(), inJSON(map[string]any{"configurations": all}), func(w io.Writer) error {
		for i := range all {
			if i > 0 {
				fmt.Fprintln(w)
			}
			fmt.Fprintf(w, "%s:\n", all[i].Name)
			if err := simulate.WritePlacements(w, all[i].Pods); err != nil {
				return err
			}
		}
		return nil
	})
}
