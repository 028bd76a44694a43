package wire_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/tools/txtar"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/internal/extender/wire"
)

// payloads returns the requests of testdata/requests with their meanings.
func payloads(tb testing.TB) (requests map[string][]byte, meanings map[string]string) {
	tb.Helper()
	files, err := filepath.Glob("testdata/requests/*.txtar")
	if err != nil || len(files) == 0 {
		tb.Fatalf("no payloads: %v", err)
	}
	requests, meanings = map[string][]byte{}, map[string]string{}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			tb.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		for _, part := range archive.Files {
			switch part.Name {
			case "request.json":
				requests[name] = part.Data
			case "want":
				meanings[name] = string(part.Data)
			default:
				tb.Fatalf("%s: unknown part %s", file, part.Name)
			}
		}
	}
	return requests, meanings
}

func describe(r *wire.Request) string {
	var b strings.Builder
	fmt.Fprintln(&b, "mode", r.Mode())
	uid, version := r.PodVersion()
	fmt.Fprintf(&b, "pod %q version %q\n", uid, version)
	for i := range r.Len() {
		fmt.Fprintf(&b, "node %s\n", r.Name(i))
	}
	return b.String()
}

func TestDecodePayloads(t *testing.T) {
	requests, meanings := payloads(t)
	for name, body := range requests {
		t.Run(name, func(t *testing.T) {
			var args extenderv1.ExtenderArgs
			if err := json.Unmarshal(body, &args); err != nil {
				t.Fatalf("encoding/json rejects it: %v", err)
			}
			var r wire.Request
			if err := r.Decode(body); err != nil {
				t.Fatal(err)
			}
			if got := describe(&r); got != meanings[name] {
				t.Errorf("got\n%swant\n%s", got, meanings[name])
			}
			want, err := readReference(body)
			if err != nil {
				t.Fatal(err)
			}
			requireSame(t, &r, want)
		})
	}
}

const pod = `"Pod":{"metadata":{"name":"p"}}`

func TestDecodeErrors(t *testing.T) {
	deep := func(open, end string, levels int) string {
		return strings.Repeat(open, levels) + strings.Repeat(end, levels)
	}
	for _, tc := range []struct{ name, body, want string }{
		{"nothing", "", `request body is empty`},
		{"white space", " \n", `request body is empty`},
		{"not JSON", "<html>\n<body>please log in to continue to the site</body>", `request body is not a JSON object: it begins with "<html>\n<body>please log in to co"…`},
		{"byte order mark", "\ufeff{}", `request body is not a JSON object: it begins with "\ufeff{}"`},
		{"list", `[1]`, `request body is not a JSON object: it begins with "[1]"`},
		{"null", `null`, `request body is not a JSON object: it begins with "null"`},
		{"form", `Pod=x`, `request body is not a JSON object: it begins with "Pod=x"`},

		{"empty object", `{}`, `request has no Pod`},
		{"no Pod", `{"NodeNames":["a"]}`, `request has no Pod`},
		{"null Pod", `{"Pod":null,"NodeNames":["a"]}`, `request has no Pod`},
		{"two Pods", `{` + pod + `,"pod":{},"NodeNames":["a"]}`, `request has more than one Pod: the others must be null or absent`},
		{"another verb's arguments", `{"PodName":"p","PodNamespace":"n","PodUID":"u","Node":"x"}`, `request has no Pod`},
		{"neither mode", `{` + pod + `}`, `request has neither Nodes nor NodeNames`},
		{"neither mode, nulls", `{` + pod + `,"Nodes":null,"NodeNames":null}`, `request has neither Nodes nor NodeNames`},
		{"both modes", `{` + pod + `,"Nodes":{"items":[{"metadata":{"name":"a"}}]},"NodeNames":["a"]}`, `request has more than one list of nodes (Nodes and NodeNames): the others must be null or absent`},
		{"names twice", `{` + pod + `,"NodeNames":["a"],"nodenames":["b"]}`, `request has more than one list of nodes (Nodes and NodeNames): the others must be null or absent`},
		{"items twice", `{` + pod + `,"Nodes":{"items":[{"metadata":{"name":"a"}}],"items":[{}]}}`, `Nodes: request has more than one list of nodes (Nodes and NodeNames): the others must be null or absent`},
		{"no names", `{` + pod + `,"NodeNames":[]}`, `request has no nodes: NodeNames is empty`},
		{"no items", `{` + pod + `,"Nodes":{"items":[ ]}}`, `request has no nodes: Nodes.items is empty`},
		{"null items", `{` + pod + `,"Nodes":{"items":null}}`, `request has no nodes: Nodes.items is empty`},
		{"absent items", `{` + pod + `,"Nodes":{}}`, `request has no nodes: Nodes.items is empty`},
		{"empty name", `{` + pod + `,"NodeNames":["a",""]}`, `NodeNames[1]: the node has no name`},
		{"node without a name", `{` + pod + `,"Nodes":{"items":[{"metadata":{"name":"a"}},{"metadata":{"uid":"b"}}]}}`, `Nodes.items[1]: the node has no name`},
		{"node with a null name", `{` + pod + `,"Nodes":{"items":[{"metadata":{"name":null}}]}}`, `Nodes.items[0]: the node has no name`},

		{"Pod is text", `{"Pod":"p","NodeNames":["a"]}`, `Pod: want an object, have a string at byte 7`},
		{"metadata is a list", `{"Pod":{"metadata":[]},"NodeNames":["a"]}`, `Pod.metadata: want an object, have an array at byte 19`},
		{"UID is a number", `{"Pod":{"metadata":{"uid":7}},"NodeNames":["a"]}`, `Pod.metadata.uid: want a string, have a number at byte 26`},
		{"names are an object", `{` + pod + `,"NodeNames":{}}`, `NodeNames: want an array, have an object at byte 45`},
		{"a name is a number", `{` + pod + `,"NodeNames":["a",7]}`, `NodeNames[1]: want a string, have a number at byte 50`},
		{"a name is null", `{` + pod + `,"NodeNames":[null]}`, `NodeNames[0]: want a string, have null at byte 46`},
		{"nodes are a list", `{` + pod + `,"Nodes":[]}`, `Nodes: want an object, have an array at byte 41`},
		{"items are an object", `{` + pod + `,"Nodes":{"items":{}}}`, `Nodes.items: want an array, have an object at byte 50`},
		{"a node is null", `{` + pod + `,"Nodes":{"items":[null]}}`, `Nodes.items[0]: want an object, have null at byte 51`},
		{"a node's name is a list", `{` + pod + `,"Nodes":{"items":[{"metadata":{"name":["a"]}}]}}`, `Nodes.items[0].metadata.name: want a string, have an array at byte 71`},

		{"more behind it", `{` + pod + `,"NodeNames":["a"]} {"Pod":null}`, `12 bytes follow the JSON object of the request, beginning with "{\"Pod\":null}"`},
		{"comma missing", `{` + pod + `,"NodeNames":["a" "b"]}`, `NodeNames: want ',' or ']', have a string at byte 50`},
		{"comma too many", `{` + pod + `,"NodeNames":["a",]}`, `NodeNames[1]: want a string, have ']' at byte 50`},
		{"comma too many in an object", `{` + pod + `,"NodeNames":["a"],}`, `want a key, have '}' at byte 51`},
		{"colon missing", `{"Pod" {}}`, `want ':', have an object at byte 7`},
		{"key without quotes", `{Pod:{}}`, `want a key, have 'P' at byte 1`},
		{"unknown key with a bad value", `{"a":nul,` + pod + `,"NodeNames":["a"]}`, `malformed value at byte 5`},
		{"unknown key with a bad object", `{"a":{"b" 1},` + pod + `,"NodeNames":["a"]}`, `malformed value at byte 5`},
		{"list metadata with a bad object", `{` + pod + `,"Nodes":{"metadata":{,},"items":[]}}`, `Nodes: malformed value at byte 53`},
		{"brackets do not match", `{` + pod + `,"NodeNames":["a"}}`, `NodeNames: want ',' or ']', have '}' at byte 49`},

		{"cut in a key", `{"Po`, `want the end of a string, but the request ends at byte 4`},
		{"cut before a value", `{"Pod":`, `Pod: want an object, but the request ends at byte 7`},
		{"cut in the Pod", `{"Pod":{"spec":{"a":"b"`, `Pod: want the end of a string, object or array, but the request ends at byte 23`},
		{"cut in a string of the Pod", `{"Pod":{"spec":{"a":"b\"`, `Pod: want the end of a string, object or array, but the request ends at byte 24`},
		{"cut in a name", `{` + pod + `,"NodeNames":["a","b`, `NodeNames[1]: want the end of a string, but the request ends at byte 52`},
		{"cut behind a name", `{` + pod + `,"NodeNames":["a"`, `NodeNames: want ',' or ']', but the request ends at byte 49`},
		{"cut at the end", `{` + pod + `,"NodeNames":["a"]`, `want ',' or '}', but the request ends at byte 50`},

		{"a long node name", `{` + pod + `,"NodeNames":["a","` + strings.Repeat("x", 254) + `"]}`, `NodeNames[1]: the name has 254 bytes, the limit is 253`},
		{"a long name of a node", `{` + pod + `,"Nodes":{"items":[{"metadata":{"name":"` + strings.Repeat(`\u00e9`, 127) + `"}}]}}`, `Nodes.items[0]: the name has 254 bytes, the limit is 253`},
		{"a long pod name", `{"Pod":{"metadata":{"name":"` + strings.Repeat("x", 254) + `"}},"NodeNames":["a"]}`, `Pod.metadata.name: the value has 254 bytes, the limit is 253`},
		{"a long namespace", `{"Pod":{"metadata":{"namespace":"` + strings.Repeat("x", 64) + `"}},"NodeNames":["a"]}`, `Pod.metadata.namespace: the value has 64 bytes, the limit is 63`},
		{"a long UID", `{"Pod":{"metadata":{"uid":"` + strings.Repeat("x", 129) + `"}},"NodeNames":["a"]}`, `Pod.metadata.uid: the value has 129 bytes, the limit is 128`},
		{"a long version", `{"Pod":{"metadata":{"resourceVersion":"` + strings.Repeat("x", 1<<20) + `"}},"NodeNames":["a"]}`, `Pod.metadata.resourceVersion: the value has 1048576 bytes, the limit is 128`},

		{"control character in a name", `{` + pod + `,"NodeNames":["a` + "\n" + `"]}`, `NodeNames[0]: control character, bad escape or invalid UTF-8 in the string at byte 46`},
		{"invalid UTF-8 in a name", `{` + pod + `,"NodeNames":["a` + "\xff" + `"]}`, `NodeNames[0]: control character, bad escape or invalid UTF-8 in the string at byte 46`},
		{"bad escape in a name", `{` + pod + `,"NodeNames":["a\x"]}`, `NodeNames[0]: control character, bad escape or invalid UTF-8 in the string at byte 46`},
		{"bad escape in a node's name", `{` + pod + `,"Nodes":{"items":[{"metadata":{"name":"\u12"}}]}}`, `Nodes.items[0].metadata.name: control character, bad escape or invalid UTF-8 in the string at byte 71`},

		{"too deep in the Pod", `{"Pod":{"spec":` + deep("[", "]", 9_999) + `},"NodeNames":["a"]}`, `Pod: nested deeper than 10000 levels at byte 10013`},
		{"too deep elsewhere", `{"x":` + deep(`{"a":`, "}", 20_000) + `}`, `nested deeper than 10000 levels at byte 50000`},
		{"only opening brackets", `{"Pod":` + strings.Repeat(`{"a":`, 1_000_000), `Pod: nested deeper than 10000 levels at byte 50002`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			body := []byte(tc.body)
			r := decoded(t, `{`+pod+`,"NodeNames":["earlier"]}`)
			err := r.Decode(body)
			if err == nil {
				t.Fatalf("no error, want %s", tc.want)
			}
			if err.Error() != tc.want {
				t.Errorf("error %s\n want %s", err, tc.want)
			}
			if r.Mode() != 0 || r.Len() != 0 || r.Pod() != nil {
				t.Errorf("the request is not empty after an error: %v, %d nodes, pod %s", r.Mode(), r.Len(), r.Pod())
			}
			if string(body) != tc.body {
				t.Error("Decode changed the body")
			}
		})
	}
}

func decoded(t testing.TB, body string) *wire.Request {
	t.Helper()
	r := &wire.Request{}
	if err := r.Decode([]byte(body)); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return r
}

// Errors go into logs and events, one line each, and must not contain the request: the environment
// of a Pod may contain secrets. A truncated request is an error.
func TestErrorsAreShortLines(t *testing.T) {
	requests, _ := payloads(t)
	secret := []byte("value-of-setting")
	for _, whole := range [][]byte{namesBody(t, 3), bytes.TrimSpace(requests["kube-scheduler-nodes"])} {
		for cut := range whole {
			var r wire.Request
			for i, body := range [][]byte{
				whole[:cut],
				append(whole[:cut:cut], whole[cut+1:]...),
				append(append(whole[:cut:cut], "\x00"...), whole[cut:]...),
			} {
				err := r.Decode(body)
				if err == nil {
					if i == 0 {
						t.Fatalf("no error for a body of %d bytes", cut)
					}
					continue
				}
				text := err.Error()
				if len(text) > 250 || strings.ContainsAny(text, "\r\n\x00") || !utf8.ValidString(text) {
					t.Fatalf("body of %d bytes: %q", cut, text)
				}
				if bytes.Contains([]byte(text), secret) {
					t.Fatalf("body of %d bytes: the error contains the Pod: %s", cut, text)
				}
			}
		}
	}
}

// The nesting limit is exactly that of encoding/json.
func TestNestingLimit(t *testing.T) {
	for levels := 9_990; levels < 10_010; levels++ {
		value := strings.Repeat("[", levels) + strings.Repeat("]", levels)
		for _, body := range []string{
			`{"x":` + value + `,` + pod + `,"NodeNames":["a"]}`,
			`{"Pod":{"spec":` + value + `},"NodeNames":["a"]}`,
			`{"Pod":{"metadata":{"x":` + value + `}},"NodeNames":["a"]}`,
			`{` + pod + `,"Nodes":{"x":` + value + `,"items":[{"metadata":{"name":"a"}}]}}`,
			`{` + pod + `,"Nodes":{"items":[{"x":` + value + `,"metadata":{"name":"a"}}]}}`,
			`{` + pod + `,"Nodes":{"items":[{"metadata":{"x":` + value + `,"name":"a"}}]}}`,
		} {
			var r wire.Request
			if err := r.Decode([]byte(body)); (err == nil) != json.Valid([]byte(body)) {
				t.Fatalf("%d levels in %.20s…: %v", levels, body, err)
			}
		}
	}
}

func TestNumberOfNodesIsBounded(t *testing.T) {
	const most = 1 << 16
	body := func(n int) []byte {
		return []byte(`{` + pod + `,"NodeNames":["a"` + strings.Repeat(`,"a"`, n-1) + `]}`)
	}
	var r wire.Request
	if err := r.Decode(body(most)); err != nil || r.Len() != most {
		t.Fatalf("got %d names, %v", r.Len(), err)
	}
	err := r.Decode(body(most + 1))
	if want := "NodeNames[65536]: more than 65536 nodes"; err == nil || err.Error() != want {
		t.Fatalf("error %v, want %s", err, want)
	}
}
