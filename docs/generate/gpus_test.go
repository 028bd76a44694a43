package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The picture is well-formed, names every pod of the example, and has the totals of the page's table.
func TestGPUPicture(t *testing.T) {
	picture, err := gpuPicture(root)
	if err != nil {
		t.Fatal(err)
	}
	for decoder := xml.NewDecoder(strings.NewReader(picture)); ; {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(filepath.Join(root, gpuPage))
	if err != nil {
		t.Fatal(err)
	}
	totals := regexp.MustCompile(`(?m)^all +\d+ +\d+ +(\d+) +(\d+)$`).FindSubmatch(page)
	if totals == nil {
		t.Fatalf("%s has no totals", gpuPage)
	}
	want := []string{string(totals[1]) + " of " + string(totals[2]) + " GiB are free"}
	pods, err := os.ReadFile(filepath.Join(root, gpuPods))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^  name: (\S+)$`).FindAllStringSubmatch(string(pods), -1) {
		want = append(want, ">"+m[1])
	}
	if len(want) < 5 {
		t.Fatalf("%s has only %d pods", gpuPods, len(want)-1)
	}
	for _, text := range want {
		if !strings.Contains(picture, text) {
			t.Errorf("the picture does not contain %q", text)
		}
	}
}

func TestPagesWithoutGPUs(t *testing.T) {
	const header = "$ outboard gpus\nNODE   GPU  USED  RESERVED  FREE  OF GiB  PODS\n"
	for name, page := range map[string]string{
		"no table":      "# Title\n",
		"other columns": "$ outboard gpus\nNODE  GPU  FREE  OF GiB  PODS  MORE\n```\n",
		"no number":     header + "a  0  6  6  unhealthy  16  default/p (6)\n```\n",
		"few columns":   header + "a  0\n```\n",
		"empty header":  "$ outboard gpus\n```\n",
	} {
		if table, err := readGPUs(page); err == nil {
			t.Errorf("%s: no error, but %+v", name, table)
		}
	}
}
