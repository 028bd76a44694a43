package fields

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// LongestQuantity is how many characters a quantity may have. The Kubernetes libraries accept more,
// but take time in proportion to the square of the number of digits: seconds for a million.
const LongestQuantity = 64

// maxExponentDigits is how many digits an exponent may have. The Kubernetes libraries take time in
// proportion to the exponent, not to its length: minutes for 1e-100000000.
const maxExponentDigits = 2

// ParseQuantity is resource.ParseQuantity for texts of others, with a bound for its time and
// memory, for whatever reads one text as a quantity. What decodes whole objects of a request checks
// their JSON before (internal/extender).
func ParseQuantity(text string) (resource.Quantity, error) {
	if len(text) > LongestQuantity {
		return resource.Quantity{}, fmt.Errorf("a quantity has %d characters: must have at most %d", len(text), LongestQuantity)
	}
	if _, exponent, ok := strings.Cut(strings.ToLower(text), "e"); ok {
		exponent = strings.TrimLeft(strings.TrimLeft(exponent, "+-"), "0")
		if digits := len(exponent) - len(strings.TrimLeft(exponent, "0123456789")); digits > maxExponentDigits {
			return resource.Quantity{}, fmt.Errorf("quantity %q has an exponent of more than %d digits", text, maxExponentDigits)
		}
	}
	return resource.ParseQuantity(text)
}
