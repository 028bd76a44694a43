package format

import (
	"errors"
	"fmt"

	"k8s.io/client-go/util/jsonpath"
)

// path selects values below a value of a document.
type path struct {
	text string
	find *jsonpath.JSONPath
}

func parsePath(text string) (*path, error) {
	parsed, err := jsonpath.Parse("path", text)
	if err != nil {
		return nil, err
	}
	braced, ok := only(parsed.Root)
	if !ok {
		return nil, errors.New("must be one path in braces, such as {.status.load}")
	}
	if err := checkNodes(braced); err != nil {
		return nil, err
	}
	find := jsonpath.New("path").AllowMissingKeys(true)
	return &path{text, find}, find.Parse(text)
}

// only returns the single list in the root of a template in braces.
func only(root *jsonpath.ListNode) (*jsonpath.ListNode, bool) {
	if len(root.Nodes) != 1 {
		return nil, false
	}
	list, ok := root.Nodes[0].(*jsonpath.ListNode)
	return list, ok
}

// checkNodes rejects programs, and paths that can select more values than the document has.
func checkNodes(list *jsonpath.ListNode) error {
	for _, n := range list.Nodes {
		var inner []*jsonpath.ListNode
		switch n := n.(type) {
		case *jsonpath.IdentifierNode:
			return fmt.Errorf("%q is not supported", n.Name)
		case *jsonpath.RecursiveNode:
			return errors.New("\"..\" is not supported: write the path out")
		case *jsonpath.UnionNode:
			inner = n.Nodes
		case *jsonpath.FilterNode:
			inner = []*jsonpath.ListNode{n.Left, n.Right}
		}
		for _, list := range inner {
			if err := checkNodes(list); err != nil {
				return err
			}
		}
	}
	return nil
}

// all returns the selected values, in no particular order if the path selects from a mapping.
func (p *path) all(from any) ([]any, error) {
	if from == nil {
		return nil, nil
	}
	results, err := p.find.FindResults(from)
	if err != nil {
		if len(err.Error()) > 100 { // it quotes a part of the document
			err = errors.New("does not match the document")
		}
		return nil, fmt.Errorf("%s: %w", p.text, err)
	}
	var values []any
	for _, result := range results {
		for _, value := range result {
			values = append(values, value.Interface())
		}
	}
	return values, nil
}

// one returns the selected value; nil if there is none.
func (p *path) one(from any) (any, error) {
	values, err := p.all(from)
	switch {
	case err != nil || len(values) == 0:
		return nil, err
	case len(values) > 1:
		return nil, fmt.Errorf("%s selects %d values instead of one", p.text, len(values))
	}
	return values[0], nil
}
