package equality

import (
	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/internal/binder"
	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/engine"
	"outboard.dev/outboard/snapshot"
)

// inMemory decides as package simulate does: with its own engine, the same View, and ledgers in memory.
type inMemory struct {
	profile *config.Profile
	engine  *engine.Engine
	result  engine.Result
	// maxTotal is the largest total of the latest scores.
	maxTotal int64
}

// ask evaluates the pod, which must be trimmed. It returns all verdicts, even with a shortlist.
func (m *inMemory) ask(view *snapshot.View, pod *corev1.Pod, nodes []*corev1.Node) decided {
	req := engine.Request{Pod: pod, View: view}
	for _, node := range nodes {
		req.Nodes = append(req.Nodes, view.Node(node.Name))
	}
	if err := m.engine.Filter(background, req, &m.result); err != nil {
		return decided{Error: oneLine(err)}
	}
	d := decided{Verdicts: map[string]verdict{}}
	for _, node := range nodes {
		d.Verdicts[node.Name] = verdict{}
	}
	for _, r := range m.result.Rejected {
		d.Verdicts[nodes[r.Index].Name] = verdict{r.Reason.Text, r.Unresolvable}
	}
	var kept []*snapshot.Node
	for _, i := range m.result.Kept {
		d.Kept = append(d.Kept, nodes[i].Name)
		kept = append(kept, req.Nodes[i])
	}
	if len(kept) == 0 {
		return d
	}
	req.Nodes = kept
	if err := m.engine.Score(background, req, &m.result); err != nil {
		d.ScoreError = oneLine(err)
		return d
	}
	m.maxTotal, d.Scores = m.result.Record.MaxTotal, map[string]int64{}
	for i, total := range m.result.Totals {
		d.Scores[d.Kept[i]] = total
	}
	return d
}

// reserve allocates the units of the pod on the node.
func (m *inMemory) reserve(view *snapshot.View, pod *corev1.Pod, node string, allocations engine.Ledgers) (map[string]string, error) {
	b := binder.Binder{Engine: m.engine, Ledgers: allocations}
	reservation, err := b.Reserve(background, pod, binder.Target{View: view, Node: m.engine.CountNominated(view, pod, view.Node(node))})
	if err != nil {
		return nil, err
	}
	return reservation.Annotations, nil
}
