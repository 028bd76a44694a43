package signal

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

// ParseNumber returns the number in a text that a source reports, between white space: a decimal
// number ("0.25", "1e9"), also with a suffix of Kubernetes quantities ("500m" is 0.5, "16Gi" is
// 17179869184). NaN and Inf are numbers.
func ParseNumber(text string) (float64, error) {
	text = strings.TrimSpace(text)
	n, err := strconv.ParseFloat(text, 64)
	if err == nil && !strings.ContainsAny(text, "_xX") { // Go has 1_000 and 0x1p4
		return n, nil
	}
	if errors.Is(err, strconv.ErrRange) {
		return 0, fmt.Errorf("%.50q is too large for a number", text)
	}
	digits := strings.TrimRight(text, "numkKMGTPEi")
	factor, known := suffixes[text[len(digits):]]
	n, err = strconv.ParseFloat(digits, 64)
	if err != nil || !known || strings.Trim(digits, "+-.0123456789") != "" {
		return 0, fmt.Errorf("%.50q is not a number", text)
	}
	return n * factor, nil
}
