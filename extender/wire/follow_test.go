package wire_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"outboard.dev/outboard/extender/wire"
)

func namesRequest(names []string) []byte {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = fmt.Sprintf("%q", name)
	}
	return []byte(`{"Pod":{"metadata":{"name":"p"}},"Nodes":null,"NodeNames":[` + strings.Join(quoted, ",") + `]}`)
}

func manyNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("node-%d.example.com", i) // of different lengths, and some the beginning of others
	}
	return names
}

// What an earlier request saves: the names that are found in it by comparing.
func TestDecodeFindsWhatIsAlike(t *testing.T) {
	all := manyNames(300)
	without := func(leave func(int) bool) []string {
		var kept []string
		for i, name := range all {
			if !leave(i) {
				kept = append(kept, name)
			}
		}
		return kept
	}
	reversed := slices.Clone(all)
	slices.Reverse(reversed)
	for _, tc := range []struct {
		name         string
		before, then []string
		alike        int // names, at least
	}{
		{"the same", all, all, 300},
		{"one less", all, without(func(i int) bool { return i == 7 }), 299},
		{"every other", all, without(func(i int) bool { return i%2 == 1 }), 150},
		{"one more", without(func(i int) bool { return i == 7 }), all, 299},
		{"one more in front", all[1:], all, 299},
		{"one more at the end", all[:299], all, 299},
		{"the first ones", all, all[:20], 20},
		{"another order", all, reversed, 0},
		{"others", all, manyNames(600)[300:], 0},
		{"a longer one", []string{"a", "b"}, []string{"ab", "b"}, 1},
		{"a shorter one", []string{"ab", "b"}, []string{"a", "b"}, 1},
		{"after escapes", []string{"\u00e4\t", "b"}, []string{"\u00e4\t", "b"}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var earlier, plain, like wire.Request
			if err := earlier.Decode(namesRequest(tc.before), nil); err != nil {
				t.Fatal(err)
			}
			body := namesRequest(tc.then)
			want, err := plain.Decode(body, nil), like.Decode(body, &earlier)
			requireAlike(t, &earlier, &plain, &like, want, err)
			alike := 0
			for i := range like.Len() {
				if like.Alike(i) >= 0 {
					alike++
				}
			}
			if got, want := like.AllAlike(), tc.name == "the same"; got != want {
				t.Errorf("AllAlike is %v", got)
			}
			if alike < tc.alike || tc.alike == 0 && alike > 0 {
				t.Errorf("%d of %d names were found in the earlier request, want %d", alike, like.Len(), tc.alike)
			}
		})
	}
}

// Any lists: nodes come, go, change places, and repeat.
func TestDecodeLikeAnyOtherRequest(t *testing.T) {
	var earlier, plain, like wire.Request
	rapid.Check(t, func(t *rapid.T) {
		names := manyNames(40)
		list := rapid.SliceOfN(rapid.SampledFrom(names), 1, 60)
		before := list.Draw(t, "before")
		then := slices.Clone(before)
		for range rapid.IntRange(0, 4).Draw(t, "changes") {
			at := rapid.IntRange(0, len(then)-1).Draw(t, "at")
			switch rapid.IntRange(0, 2).Draw(t, "change") {
			case 0:
				then = slices.Insert(then, at, rapid.SampledFrom(names).Draw(t, "name"))
			case 1:
				then[at] = rapid.SampledFrom(names).Draw(t, "name")
			case 2:
				then = append(then[at:len(then):len(then)], then[:at]...)
			}
		}
		if err := earlier.Decode(namesRequest(before), nil); err != nil {
			t.Fatal(err)
		}
		body := namesRequest(then)
		if rapid.Bool().Draw(t, "spoil") {
			body[rapid.IntRange(0, len(body)-1).Draw(t, "spoilt")] = rapid.SampledFrom([]byte(`",]}x\`)).Draw(t, "by")
		}
		want, err := plain.Decode(body, nil), like.Decode(body, &earlier)
		requireAlike(t, &earlier, &plain, &like, want, err)
	})
}
