package migrate

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/internal/gpushare"
)

// WriteText describes the plan.
func (p *Plan) WriteText(w io.Writer) error {
	if none := p.none(); none != "" {
		_, err := fmt.Fprintln(w, none)
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "DeviceClass %s: %s\n\n", p.Class.Name, p.Class.Spec.Selectors[0].CEL.Expression)
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAMESPACE\tTEMPLATE\tGPUS\tPODS\tOF\tCONTAINERS")
	for i := range p.Templates {
		t := &p.Templates[i]
		for j := range t.Workloads {
			of := &t.Workloads[j]
			fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s %s\t%s\n", t.Object.Namespace, t.Object.Name, t.requests(), of.Pods, of.Kind, of.Name, strings.Join(of.Containers, ", "))
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if len(p.Templates) > 0 {
		fmt.Fprintf(&b, "\nIn each pod spec, remove %s and %s, and add the following, with the name of the template:\n%s", gpushare.Memory, gpushare.Count, podChange("TEMPLATE", "CONTAINER"))
	}
	if len(p.Missing) > 0 {
		b.WriteString("\nWithout an equivalent, or for you to decide:\n")
	}
	for _, m := range p.Missing {
		fmt.Fprintf(&b, "- %s: %s\n", m.Workload, m.What)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// none says that no pod needs anything; "" if one does.
func (p *Plan) none() string {
	if len(p.Templates)+len(p.Missing) > 0 {
		return ""
	}
	return fmt.Sprintf("no pod requests %s or %s (pods that have not ended: %d)", gpushare.Memory, gpushare.Count, p.Pods)
}

// podChange returns what a pod spec needs to use the template, in YAML.
func podChange(template string, containers ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  spec:\n    resourceClaims: [{name: gpu, resourceClaimTemplateName: %s}]\n    containers:\n", template)
	for _, name := range containers {
		fmt.Fprintf(&b, "    - {name: %s, resources: {claims: [{name: gpu}]}}\n", name)
	}
	return b.String()
}

// WriteYAML writes the objects as documents for kubectl apply. What to change in pod specs, and what has no equivalent, are comments.
func (p *Plan) WriteYAML(w io.Writer) error {
	var b strings.Builder
	comment := func(text string) {
		for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
			b.WriteString(strings.TrimRight("# "+line, " ") + "\n")
		}
	}
	document := func(object any) error {
		data, err := yaml.Marshal(object)
		b.Write(data)
		return err
	}
	if none := p.none(); none != "" {
		comment(none)
	}
	for _, m := range p.Missing {
		comment(fmt.Sprintf("%s: %s", m.Workload, m.What))
	}
	if err := document(p.Class); err != nil {
		return err
	}
	for i := range p.Templates {
		t := &p.Templates[i]
		b.WriteString("---\n")
		for j := range t.Workloads {
			of := &t.Workloads[j]
			comment(fmt.Sprintf("%s: remove %s and %s, and add:\n%s", of, gpushare.Memory, gpushare.Count, podChange(t.Object.Name, of.Containers...)))
		}
		if err := document(t.Object); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteJSON writes the plan.
func (p *Plan) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(p)
}
