package format

import (
	"fmt"
	"strconv"
	"strings"

	"outboard.dev/outboard/signal"
)

// number converts a value of a document to a number; ok is false if the value is empty.
func number(value any) (n float64, ok bool, err error) {
	switch v := value.(type) {
	case nil:
		return 0, false, nil
	case bool:
		if v {
			return 1, true, nil
		}
		return 0, true, nil
	case float64:
		return v, true, nil
	case string:
		if strings.TrimSpace(v) == "" {
			return 0, false, nil
		}
		n, err = signal.ParseNumber(v)
		return n, err == nil, err
	}
	return 0, false, fmt.Errorf("%s is not a number", kind(value))
}

// keyOf converts a value of a document to a key; "" if the value is empty.
func keyOf(value any) (string, error) {
	switch v := value.(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), nil
	}
	return "", fmt.Errorf("%s is not a key", kind(value))
}

func kind(value any) string {
	switch value.(type) {
	case map[string]any:
		return "a mapping"
	case []any:
		return "a list"
	case bool:
		return "true or false"
	}
	return fmt.Sprintf("a %T", value)
}
