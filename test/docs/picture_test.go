package docs

import (
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// docs/gpu-sharing.svg is well-formed, and shows the GPUs of the table in docs/sharing-gpus.md, what each pod has and what is free,
// and each pod of the example, also the one that waits.
func TestPictureOfGPUs(t *testing.T) {
	var shown []string // the texts of the picture
	decoder, in := xml.NewDecoder(strings.NewReader(read(t, "docs/gpu-sharing.svg"))), ""
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			in = token.Name.Local
		case xml.EndElement:
			in = ""
		case xml.CharData:
			if in == "text" {
				shown = append(shown, string(token))
			}
		}
	}

	var want []string // the texts of the table, in the order of names
	row := regexp.MustCompile(`(?m)^(\w+) +\d+ +\d+ +\d+ +(\d+) +(\d+)(?: +(.*))?$`)
	share := regexp.MustCompile(`default/(\S+) \((\d+)\)`)
	page := read(t, "docs/sharing-gpus.md")
	for _, gpu := range row.FindAllStringSubmatch(page, -1) {
		for _, pod := range share.FindAllStringSubmatch(gpu[4], -1) {
			want = append(want, pod[1]+" "+pod[2])
		}
		if gpu[2] != "0" {
			want = append(want, gpu[2]+" free")
		}
		want = append(want, gpu[3]+" GiB")
		if name := "node " + gpu[1]; !slices.Contains(want, name) {
			want = append(want, name)
		}
	}
	if len(want) < 20 {
		t.Fatalf("the table has only %q", want)
	}
	for _, pod := range regexp.MustCompile(`(?ms)^  name: (\S+)$.*?gpu-(mem|count): (\d+)`).FindAllStringSubmatch(read(t, "examples/gpushare/pods.yaml"), -1) {
		if !slices.ContainsFunc(want, func(text string) bool { return strings.HasPrefix(text, pod[1]+" ") }) {
			want = append(want, pod[1], pod[3]+" GiB", "pending")
		}
	}
	totals := regexp.MustCompile(`(?m)^all +\d+ +\d+ +(\d+) +(\d+)$`).FindStringSubmatch(page)
	if totals == nil {
		t.Fatal("the table has no totals")
	}
	drawn := slices.DeleteFunc(slices.Clone(shown), func(text string) bool {
		return strings.Contains(text, " waits for ") || strings.Contains(text, "Each column")
	})
	slices.Sort(drawn)
	slices.Sort(want)
	if !slices.Equal(drawn, want) {
		t.Errorf("the picture shows\n%q\nand the pages say\n%q", drawn, want)
	}
	if title := totals[1] + " of " + totals[2] + " GiB are free, and "; !slices.ContainsFunc(shown, func(text string) bool { return strings.HasPrefix(text, title) }) {
		t.Errorf("the picture has no title %q", title)
	}
}
