package extender

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"outboard.dev/outboard/internal/extender/wire"
)

const (
	// maxExponentDigits is how many digits a negative exponent may have. The Kubernetes libraries
	// take ten seconds to decode the resource quantity "1e-9999999", and ten times as long for each
	// further digit; five digits take a millisecond.
	maxExponentDigits = 5
	// There may be maxExponents exponents with at least fewDigits digits, which no sensible
	// quantity needs.
	fewDigits    = 3
	maxExponents = 16
	// maxDigits is how many digits a quantity may have. The Kubernetes libraries take time in proportion to its square: eight seconds for
	// three million digits, and a microsecond for this many. Environment variables, arguments and annotations that are numbers, such as
	// the modulus of a key, look the same and are shorter, too.
	maxDigits = 1000

	// maxObject bounds the JSON of a Pod or Node, as the API server does, and maxObjectWeight the
	// memory for decoding it: enough for 4,000 environment variables.
	maxObject       = 3 << 20
	maxObjectWeight = 8 << 20
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

// checkQuantities rejects resource quantities that take long to decode.
func checkQuantities(body []byte) error {
	if err := checkDigits(body); err != nil {
		return err
	}
	exponents := 0
	for at := 0; ; at++ {
		i := bytes.IndexByte(body[at:], '-')
		if i < 0 {
			return nil
		}
		at += i
		digits := 0
		for at+1+digits < len(body) && '0' <= body[at+1+digits] && body[at+1+digits] <= '9' {
			digits++
		}
		if digits < fewDigits || !endsNumber(body[at+1+digits:]) || !beginsNumber(body[:at]) {
			continue
		}
		if digits > maxExponentDigits {
			return errors.New("a resource quantity has a negative exponent of more than 5 digits")
		}
		if exponents++; exponents > maxExponents {
			return fmt.Errorf("more than %d resource quantities have a negative exponent of more than 2 digits", maxExponents)
		}
	}
}

// checkDigits rejects values that begin with more than maxDigits digits. It looks at one byte in so many, and at their neighbors.
func checkDigits(body []byte) error {
	for at := maxDigits; at < len(body); at += maxDigits {
		if !isDigit(body[at]) {
			continue
		}
		from := at
		for from > 0 && isDigit(body[from-1]) {
			from--
		}
		for at < len(body) && isDigit(body[at]) {
			at++
		}
		if at-from > maxDigits && beginsValue(body[:from]) {
			return fmt.Errorf("a resource quantity has more than %d digits", maxDigits)
		}
	}
	return nil
}

// isDigit reports whether a byte may be in the digits of a quantity.
func isDigit(c byte) bool { return '0' <= c && c <= '9' || c == '.' }

// beginsValue reports whether a value, a string or not, starts at the end of text.
func beginsValue(text []byte) bool {
	at := len(text) - 1
	if at >= 0 && (text[at] == '+' || text[at] == '-') {
		at--
	}
	for at >= 0 && space(text[at]) {
		at--
	}
	return at >= 0 && bytes.IndexByte([]byte(`":[,`), text[at]) >= 0 && (at == 0 || text[at-1] != '\\')
}

// space reports whether a byte may surround the number in a quantity. Some characters beyond ASCII
// may.
func space(c byte) bool { return c <= ' ' || c >= 0x80 }

// endsNumber reports whether a value ends here.
func endsNumber(rest []byte) bool {
	for len(rest) > 0 && space(rest[0]) {
		rest = rest[1:]
	}
	return len(rest) > 0 && bytes.IndexByte([]byte(`",}]`), rest[0]) >= 0
}

// beginsNumber reports whether a value, a string or not, starts shortly before the end of text, and
// has only a number and an e.
func beginsNumber(text []byte) bool {
	at := len(text) - 1
	if at < 0 || text[at]|0x20 != 'e' {
		return false
	}
	back := func(while func(byte) bool) {
		for at--; at >= 0 && while(text[at]); at-- {
		}
	}
	back(func(c byte) bool { return '0' <= c && c <= '9' || c == '.' || c == '+' || c == '-' })
	for at++; at > 0 && space(text[at-1]); at-- {
	}
	if at--; at >= 0 && text[at] == ':' {
		back(space) // after the key
	}
	return at >= 0 && text[at] == '"' && (at == 0 || text[at-1] != '\\')
}
