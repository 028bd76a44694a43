package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"outboard.dev/outboard/policies/standard"
)

const (
	reasonsPath = "docs/reference/reasons.md"
	// byHand is the line of the page above what is not generated.
	byHand = "<!-- Written by hand from here on. -->"
)

const aboutReasons = "A policy gives a reason for each node that it rejects. The text is in the pod's events, and the code in `outboard explain` and in the\n" +
	"label `reason` of `outboard_rejected_nodes_total`. The numbers are in `outboard explain`: what the node has left, and what the pod needs.\n" +
	"The column *evicting pods* says whether preemption can make the pod fit: if not, kube-scheduler looks for no victims on the node.\n"

// reasonHeader is the header of the tables of reasons, here and in the READMEs of policies.
var reasonHeader = []string{"Code", "Text", "Have / want", "Evicting pods", "What to do"}

// reasons returns the page about reasons and errors: the reasons of policies, and what is in the
// file below them.
func reasons(root string) (string, error) {
	d := newDocument("Reasons and errors", "the reasons in the code and in the READMEs of policies")
	d.paragraph(aboutReasons)
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
		d.paragraph("The [README of the policy](../../%s/README.md#reasons) has more about them.", filepath.ToSlash(folder))
		d.table(reasonHeader, rows)
	}
	page, err := os.ReadFile(filepath.Join(root, reasonsPath))
	if err != nil {
		return "", err
	}
	_, rest, found := strings.Cut(string(page), byHand)
	if !found {
		return "", fmt.Errorf("the line %s is missing", byHand)
	}
	return d.String() + byHand + rest, nil
}

// policyRows returns the rows of the README in a policy's folder.
func policyRows(root, folder string) ([][]string, error) {
	readme, err := os.ReadFile(filepath.Join(root, folder, "README.md"))
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
		rows = append(rows, row)
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
