package extender

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode"

	"outboard.dev/outboard/internal/extender/wire"
)

const (
	// maxObject bounds the JSON of a Pod or Node, as the API server does, and maxObjectWeight the
	// memory for decoding it: enough for 4,000 environment variables.
	maxObject       = 3 << 20
	maxObjectWeight = 8 << 20
	// maxDigits is how many digits a quantity may have. Environment variables, arguments and
	// annotations that are numbers, such as the modulus of a key, look the same and are shorter.
	maxDigits = 1000
	// maxExponentDigits is how many digits a negative exponent may have. Three take 20 µs.
	maxExponentDigits = 3
)

// decodeObject is json.Unmarshal for a Pod or Node.
func decodeObject(body []byte, into any) error {
	if err := checkQuantities(body); err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}

// weightOf returns the memory for decoding a Pod or Node, or an error if that exceeds a limit.
func weightOf(object []byte) (int64, error) {
	if len(object) > maxObject {
		return 0, fmt.Errorf("it has %d bytes of JSON, the limit is %d", len(object), maxObject)
	}
	weight := wire.Weight(object)
	if weight > maxObjectWeight {
		return 0, fmt.Errorf("decoding it may take %d bytes of memory, the limit is %d", weight, maxObjectWeight)
	}
	return weight, nil
}

// checkQuantities rejects values that the decoder would read for a long time: the Kubernetes
// libraries take time in proportion to the square of the digits of a quantity, and to a negative
// exponent. fields.ParseQuantity has lower limits, because it reads quantities only; here, any
// value of an object might be one, and must not be rejected if it is not.
func checkQuantities(body []byte) error {
	for at := 0; at < len(body); at++ {
		from := at
		for at < len(body) && isNumeric(body[at]) {
			at++
		}
		number := body[from:at]
		if len(number) <= maxExponentDigits || !beginsValue(body[:from]) {
			continue
		}
		if len(number) > maxDigits {
			return fmt.Errorf("a resource quantity has more than %d digits", maxDigits)
		}
		_, exponent, _ := bytes.Cut(bytes.ToLower(number), []byte("e-"))
		if len(exponent) > maxExponentDigits && endsValue(body[at:]) {
			return fmt.Errorf("a resource quantity has a negative exponent of more than %d digits", maxExponentDigits)
		}
	}
	return nil
}

// isNumeric reports whether a byte may be in the number of a quantity.
func isNumeric(c byte) bool {
	return '0' <= c && c <= '9' || c == '.' || c == '-' || c == '+' || c == 'e' || c == 'E'
}

// beginsValue reports whether a string or a number starts at the end of text.
func beginsValue(text []byte) bool {
	text = bytes.TrimRightFunc(text, unicode.IsSpace)
	if key, ok := bytes.CutSuffix(text, []byte(":")); ok {
		text = bytes.TrimRightFunc(key, unicode.IsSpace)
	}
	return bytes.HasSuffix(text, []byte(`"`)) && !bytes.HasSuffix(text, []byte(`\"`))
}

// endsValue reports whether a string or a number ends at the start of text.
func endsValue(text []byte) bool {
	text = bytes.TrimLeftFunc(text, unicode.IsSpace)
	return len(text) > 0 && bytes.IndexByte([]byte(`",}]`), text[0]) >= 0
}
