package main

import (
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/policies/standard"
	"outboard.dev/outboard/policy"
)

const aboutReasons = "A policy gives a reason for each node that it rejects. The text is in the pod's events, and the code in `outboard explain` and in the\n" +
	"label `reason` of `outboard_rejected_nodes_total`. The numbers are in `outboard explain`: what the node has left, and what the pod needs.\n" +
	"The column *evicting pods* says whether preemption can make the pod fit: if not, kube-scheduler looks for no victims on the node.\n"

// reasonHeader is the header of the tables of reasons, here and in the READMEs of policies.
var reasonHeader = []string{"Code", "Text", "Have / want", "Evicting pods", "What to do"}

// reasons returns the page about reasons and errors.
func reasons(root string) (string, error) {
	d := newDocument("Reasons and errors", "the reasons in the code and in the READMEs of policies")
	d.line(aboutReasons)
	for _, kind := range standard.Types() {
		folder := filepath.Join("policies", strings.ToLower(kind.Name))
		rows, err := policyRows(root, folder)
		if err != nil {
			return "", fmt.Errorf("%s: %w", folder, err)
		}
		d.line("## %s\n", kind.Name)
		if len(rows) == 0 {
			d.line("The policy rejects no node.\n")
			continue
		}
		d.line("The [README of the policy](../../%s/README.md#reasons) has more about them.\n", filepath.ToSlash(folder))
		d.table(reasonHeader, rows)
	}
	d.line("## Every profile\n")
	d.table(reasonHeader, [][]string{{
		code(engine.NodeUnknown.Code), plain(engine.NodeUnknown.Text), "", "can help",
		"Wait: the node has just been created. If it persists, see `outboard_cluster_unreadable`.",
	}})
	if err := failures(d, root); err != nil {
		return "", err
	}
	return strings.TrimSuffix(d.String(), "\n"), nil
}

// policyRows returns the rows of the README in a policy's folder, with the units of the code.
func policyRows(root, folder string) ([][]string, error) {
	readme, err := os.ReadFile(filepath.Join(root, folder, "README.md"))
	if err != nil {
		return nil, err
	}
	inCode, err := reasonsIn(filepath.Join(root, folder))
	if err != nil {
		return nil, err
	}
	_, section, _ := strings.Cut(string(readme), "\n## Reasons\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var rows [][]string
	for line := range strings.Lines(section) {
		inner, ok := strings.CutPrefix(strings.TrimSpace(line), "| ")
		if !ok || strings.HasPrefix(inner, "---") || strings.HasPrefix(inner, reasonHeader[0]+" |") {
			continue
		}
		row := cells(inner)
		if len(row) != len(reasonHeader) || row[3] == "" || row[4] == "" {
			return nil, fmt.Errorf("the row of a reason must have the columns %s: %s", strings.Join(reasonHeader, ", "), line)
		}
		if i := slices.IndexFunc(inCode, func(r policy.Reason) bool { return code(r.Code) == row[0] }); i >= 0 {
			if unit := inCode[i].Unit; unit != "" && !strings.Contains(row[2], unit) {
				row[2] += " (" + unit + ")"
			}
			inCode = slices.Delete(inCode, i, i+1)
		}
		rows = append(rows, row)
	}
	if len(inCode) > 0 {
		return nil, fmt.Errorf("README.md has no row for the reason %s", inCode[0].Code)
	}
	return rows, nil
}

// cells returns the cells of a row without its first delimiter.
func cells(row string) []string {
	all := strings.Split(strings.TrimSuffix(row, "|"), "|")
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}
	return all
}

// reasonsIn returns the reasons in the code of a folder whose codes do not follow from a configuration.
func reasonsIn(folder string) ([]policy.Reason, error) {
	files, err := parseFolder(folder)
	if err != nil {
		return nil, err
	}
	var found []policy.Reason
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			literal, ok := n.(*ast.CompositeLit)
			if !ok || literal.Type == nil || nameOf(literal.Type) != "Reason" {
				return true
			}
			var r policy.Reason
			for _, element := range literal.Elts {
				if pair, ok := element.(*ast.KeyValueExpr); ok {
					value, _ := text(pair.Value)
					switch nameOf(pair.Key) {
					case "Code":
						r.Code = value
					case "Text":
						r.Text = value
					case "Unit":
						r.Unit = value
					}
				}
			}
			if r.Code != "" {
				found = append(found, r)
			}
			return true
		})
	}
	return found, nil
}
