package wire_test

import (
	"encoding/json"
	"fmt"
	"io"
	"testing"
	"time"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"outboard.dev/outboard/internal/extender/wire"
)

// These benchmarks report x-stdlib: how many times faster they are than encoding/json. Both take turns during the measurement,
// so that the ratio is valid on a busy machine. The ratio is more reliable than the time.

var requestSizes = []struct {
	mode  wire.Mode
	nodes int
}{{wire.Names, 500}, {wire.Names, 5000}, {wire.Nodes, 500}, {wire.Nodes, 5000}}

func body(b *testing.B, mode wire.Mode, nodes int) []byte {
	if mode == wire.Names {
		return namesBody(b, nodes)
	}
	return nodesBody(b, nodes)
}

// against benchmarks ours and then compares it with stdlib.
func against(b *testing.B, bytes int, ours, stdlib func() error) {
	run := func(f func() error) {
		if err := f(); err != nil {
			b.Fatal(err)
		}
	}
	run(ours) // grows the reused buffers
	b.SetBytes(int64(bytes))
	b.ReportAllocs()
	for b.Loop() {
		run(ours)
	}
	var own, other time.Duration
	turns, calls := 0, 0
	for ; turns < 3 || other < b.Elapsed(); turns++ {
		began := time.Now()
		run(stdlib)
		other += time.Since(began)
		for began = time.Now(); calls == 0 || own+time.Since(began) < other; calls++ {
			run(ours)
		}
		own += time.Since(began)
	}
	b.ReportMetric(other.Seconds()/float64(turns)/(own.Seconds()/float64(calls)), "x-stdlib")
}

func BenchmarkDecode(b *testing.B) {
	for _, size := range requestSizes {
		b.Run(fmt.Sprintf("%v=%d", size.mode, size.nodes), func(b *testing.B) {
			body := body(b, size.mode, size.nodes)
			var r wire.Request
			against(b, len(body),
				func() error { return r.Decode(body) },
				func() error { return json.Unmarshal(body, new(extenderv1.ExtenderArgs)) })
		})
	}
}

// verdicts are those of a cluster where part of the nodes fit: of ten nodes the first keep nodes pass, and the others lack a
// GPU.
func verdicts(nodes, keep int) (kept []int32, failed []wire.Failure) {
	for i := range int32(nodes) {
		if int(i)%10 < keep {
			kept = append(kept, i)
		} else {
			failed = append(failed, wire.Failure{Index: i, Text: "no single GPU has enough free memory"})
		}
	}
	return kept, failed
}

func BenchmarkAppendFilterResult(b *testing.B) {
	for _, size := range requestSizes {
		for _, keep := range []int{10, 5, 0} {
			b.Run(fmt.Sprintf("%v=%d/kept=%d%%", size.mode, size.nodes, 10*keep), func(b *testing.B) {
				body := body(b, size.mode, size.nodes)
				kept, failed := verdicts(size.nodes, keep)
				var r wire.Request
				var args extenderv1.ExtenderArgs
				if err := r.Decode(body); err != nil {
					b.Fatal(err)
				}
				if err := json.Unmarshal(body, &args); err != nil {
					b.Fatal(err)
				}
				var answer wire.Response
				answer.AppendFilterResult(&r, kept, failed, nil)
				against(b, answer.Len(),
					func() error {
						answer.Reset()
						answer.AppendFilterResult(&r, kept, failed, nil)
						_, err := answer.WriteTo(io.Discard)
						return err
					},
					func() error { return marshalFilterResult(&args, kept, failed) })
			})
		}
	}
}

func marshalFilterResult(args *extenderv1.ExtenderArgs, kept []int32, failed []wire.Failure) error {
	var result extenderv1.ExtenderFilterResult
	if args.Nodes != nil {
		list := args.Nodes.DeepCopy()
		list.Items = list.Items[:0]
		for _, i := range kept {
			list.Items = append(list.Items, args.Nodes.Items[i])
		}
		result.Nodes = list
	} else {
		names := make([]string, 0, len(kept))
		for _, i := range kept {
			names = append(names, (*args.NodeNames)[i])
		}
		result.NodeNames = &names
	}
	if len(failed) > 0 {
		result.FailedNodes = extenderv1.FailedNodesMap{}
	}
	for _, f := range failed {
		if args.Nodes != nil {
			result.FailedNodes[args.Nodes.Items[f.Index].Name] = f.Text
		} else {
			result.FailedNodes[(*args.NodeNames)[f.Index]] = f.Text
		}
	}
	_, err := json.Marshal(&result)
	return err
}

func BenchmarkAppendHostPriorities(b *testing.B) {
	for _, nodes := range []int{500, 5000} {
		b.Run(fmt.Sprintf("hosts=%d", nodes), func(b *testing.B) {
			var r wire.Request
			if err := r.Decode(namesBody(b, nodes)); err != nil {
				b.Fatal(err)
			}
			scores := make([]int64, nodes)
			list := make(extenderv1.HostPriorityList, nodes)
			for i := range scores {
				scores[i] = int64(1 + i%10)
				list[i] = extenderv1.HostPriority{Host: nodeName(i), Score: scores[i]}
			}
			answer := wire.AppendHostPriorities(nil, &r, scores)
			against(b, len(answer),
				func() error { answer = wire.AppendHostPriorities(answer[:0], &r, scores); return nil },
				func() error { _, err := json.Marshal(list); return err })
		})
	}
}
