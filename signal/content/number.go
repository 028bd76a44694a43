package content

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// suffixes are the suffixes of Kubernetes quantities. This package does not use
// resource.ParseQuantity, which takes minutes for some short texts.
var suffixes = map[string]float64{
	"n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
	"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60,
}

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
		return numberIn(v)
	}
	return 0, false, fmt.Errorf("%s is not a number", kind(value))
}

func numberIn(text string) (n float64, ok bool, err error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return 0, false, nil
	}
	n, err = strconv.ParseFloat(text, 64)
	if err == nil {
		return n, true, nil
	}
	if errors.Is(err, strconv.ErrRange) {
		return 0, false, fmt.Errorf("%.50q is too large for a number", text)
	}
	digits := strings.TrimRight(text, "numkKMGTPEi")
	factor, known := suffixes[text[len(digits):]]
	n, err = strconv.ParseFloat(digits, 64)
	if err != nil || !known || strings.Trim(digits, "+-.0123456789") != "" {
		return 0, false, fmt.Errorf("%.50q is not a number", text)
	}
	return n * factor, true, nil
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
