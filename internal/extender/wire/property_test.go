package wire_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	"pgregory.net/rapid"

	"outboard.dev/outboard/internal/extender/wire"
)

// arguments draws what kube-scheduler may send, and more: names and texts are any Unicode, no longer than a namespace may be.
func arguments(t *rapid.T) *extenderv1.ExtenderArgs {
	text := rapid.OneOf(rapid.StringMatching(`[a-z0-9.-]{1,20}`), rapid.StringN(-1, -1, wire.MaxNamespace))
	objectMeta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Name: name, Namespace: text.Draw(t, "namespace"), UID: types.UID(text.Draw(t, "uid")), ResourceVersion: text.Draw(t, "version"),
			Labels: rapid.MapOfN(text, text, 0, 3).Draw(t, "labels"),
		}
	}
	args := &extenderv1.ExtenderArgs{Pod: &corev1.Pod{ObjectMeta: objectMeta(text.Draw(t, "pod"))}}
	args.Pod.Spec.Containers = []corev1.Container{{Name: "c", Command: rapid.SliceOfN(text, 0, 3).Draw(t, "command")}}
	names := rapid.SliceOfNDistinct(text.Filter(func(s string) bool { return s != "" }), 1, 12, rapid.ID).Draw(t, "names")
	if rapid.Bool().Draw(t, "names mode") {
		args.NodeNames = &names
		return args
	}
	args.Nodes = &corev1.NodeList{}
	for _, name := range names {
		args.Nodes.Items = append(args.Nodes.Items, corev1.Node{ObjectMeta: objectMeta(name), Spec: corev1.NodeSpec{ProviderID: text.Draw(t, "provider")}})
	}
	return args
}

// decodedArguments returns a request for drawn arguments in kube-scheduler's own encoding or in
// another one, which is what encoding/json decodes.
func decodedArguments(t *rapid.T) *wire.Request {
	body := marshal(t, arguments(t))
	if rapid.Bool().Draw(t, "respell") {
		body = respell(body, rapid.Uint64().Draw(t, "spelling"))
	}
	want, err := readReference(body)
	if err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	r := &wire.Request{}
	if err := r.Decode(body); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	requireSame(t, r, want)
	return r
}

// Requests in which a few tokens are missing, repeated, or replaced by others are almost valid, and scanners are most likely to
// fail on these.
func TestDecodeOfNearlyRightRequests(t *testing.T) {
	const request = `{ "Pod" : { "metadata" : { "name" : "p" , "labels" : { "x" : "\\\"}" } } , "spec" : [ 1 ] } , "Nodes" : %s , "NodeNames" : %s }`
	const nodes = `{ "metadata" : { } , "items" : [ { "metadata" : { "name" : "a" } , "spec" : { "b" : [ { } ] } } , { "metadata" : { "name" : "b" } } ] }`
	replacements := strings.Fields(`{ } [ ] , : null true -1 "" "\\" "\" " \ "a" "}" "p\u006fd" "POD" "nodes" "nodenames" "items" "metadata" "name" "uid" {} [] "é"` + " \xff \x00 \x01")
	token := rapid.SampledFrom(replacements)
	var r wire.Request
	rapid.Check(t, func(t *rapid.T) {
		body := fmt.Sprintf(request, "null", `[ "a" , "b" ]`)
		if rapid.Bool().Draw(t, "nodes") {
			body = fmt.Sprintf(request, nodes, "null")
		}
		tokens := strings.Fields(body)
		for range rapid.IntRange(1, 4).Draw(t, "changes") {
			at := rapid.IntRange(0, len(tokens)-1).Draw(t, "at")
			end := min(len(tokens), at+rapid.IntRange(0, 3).Draw(t, "length"))
			switch change := rapid.SampledFrom([]string{"lose", "double", "replace", "swap"}).Draw(t, "change"); change {
			case "lose":
				tokens = slices.Delete(tokens, at, end)
			case "double":
				tokens = slices.Insert(tokens, end, slices.Clone(tokens[at:end])...)
			case "replace":
				tokens[at] = token.Draw(t, "token")
			case "swap":
				other := rapid.IntRange(0, len(tokens)-1).Draw(t, "other")
				tokens[at], tokens[other] = tokens[other], tokens[at]
			}
			if len(tokens) == 0 {
				break
			}
		}
		requireContract(t, &r, []byte(strings.Join(tokens, rapid.SampledFrom([]string{"", " "}).Draw(t, "separator"))))
	})
}

// Any request of kube-scheduler is decoded, and any decision about it is encoded.
func TestResponsesHaveTheDecision(t *testing.T) {
	text := rapid.OneOf(rapid.SampledFrom([]string{"no GPU", "no license", ""}), rapid.String())
	rapid.Check(t, func(t *rapid.T) {
		r := decodedArguments(t)
		var kept []int32
		var failed, unresolvable []wire.Failure
		scores := make([]int64, r.Len())
		for i := range int32(r.Len()) {
			switch rapid.IntRange(0, 5).Draw(t, "verdict") {
			case 0:
				failed = append(failed, wire.Failure{Index: i, Text: text.Draw(t, "text")})
			case 1:
				unresolvable = append(unresolvable, wire.Failure{Index: i, Text: text.Draw(t, "text")})
			case 2: // in no list
			default:
				kept = append(kept, i)
			}
			scores[i] = rapid.OneOf(rapid.Int64Range(0, 10), rapid.Int64()).Draw(t, "score")
		}
		answer := filterResult(t, r, kept, failed, unresolvable)
		requireFilterResult(t, r, answer, kept, failed, unresolvable)

		requirePriorities(t, r, wire.AppendHostPriorities(nil, r, scores), scores)
	})
}

// respell encodes the same request differently: with other white space, order of members, letter case of keys and escapes, with
// unknown members, and with members that a later one overrides.
func respell(body []byte, seed uint64) []byte {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	s := speller{random: rand.New(rand.NewPCG(seed, 0))}
	s.value(d, token(d), "")
	s.space()
	return s.out.Bytes()
}

type speller struct {
	random *rand.Rand
	out    bytes.Buffer
}

func token(d *json.Decoder) json.Token {
	t, err := d.Token()
	if err != nil {
		panic(err)
	}
	return t
}

func (s *speller) value(d *json.Decoder, first json.Token, path string) {
	s.space()
	switch v := first.(type) {
	case json.Delim:
		if v == '{' {
			s.object(d, path)
		} else {
			s.array(d, path)
		}
	case string:
		s.text(v)
	case nil:
		s.out.WriteString("null")
	default:
		fmt.Fprint(&s.out, v)
	}
}

func (s *speller) array(d *json.Decoder, path string) {
	s.out.WriteByte('[')
	for i := 0; d.More(); i++ {
		if i > 0 {
			s.out.WriteByte(',')
		}
		s.value(d, token(d), path+"[]")
		s.space()
	}
	token(d)
	s.space()
	s.out.WriteByte(']')
}

// The objects with fixed keys; in other objects a different case is another key.
var fixedKeys = map[string]bool{
	"": true, ".Pod": true, ".Pod.metadata": true, ".Nodes": true, ".Nodes.items[]": true, ".Nodes.items[].metadata": true,
}

func (s *speller) object(d *json.Decoder, path string) {
	var members []string
	for d.More() {
		key := token(d).(string)
		m := speller{random: s.random}
		m.space()
		if fixedKeys[path] && s.random.IntN(3) == 0 {
			m.text(strings.ToUpper(key))
		} else {
			m.text(key)
		}
		m.space()
		m.out.WriteByte(':')
		m.value(d, token(d), path+"."+key)
		m.space()
		members = append(members, m.out.String())
	}
	token(d)
	s.random.Shuffle(len(members), func(i, k int) { members[i], members[k] = members[k], members[i] })
	if fixedKeys[path] && s.random.IntN(3) == 0 {
		members = append([]string{`"unknown":{"Pod":[null,"}"],"items":1e3,"metadata":{"name":"x"}}`}, members...)
	}
	if path == "" && s.random.IntN(3) == 0 {
		members = append([]string{`"Pod":null`, `"nodes":null`, `"NODENAMES":null`}, members...)
	}
	s.out.WriteString("{" + strings.Join(members, ",") + "}")
}

func (s *speller) text(text string) {
	s.out.WriteByte('"')
	for _, c := range text {
		switch {
		case s.random.IntN(12) == 0 && c > 0xffff:
			high, low := utf16.EncodeRune(c)
			fmt.Fprintf(&s.out, `\u%04x\u%04X`, high, low)
		case (s.random.IntN(12) == 0 || c < ' ') && c <= 0xffff:
			fmt.Fprintf(&s.out, `\u%04x`, c)
		case c == '"' || c == '\\' || c == '/' && s.random.IntN(2) == 0:
			s.out.WriteString(`\` + string(c))
		default:
			s.out.WriteRune(c)
		}
	}
	s.out.WriteByte('"')
}

func (s *speller) space() {
	for s.random.IntN(4) == 0 {
		s.out.WriteByte(" \t\r\n"[s.random.IntN(4)])
	}
}
