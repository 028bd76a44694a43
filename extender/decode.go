package extender

import (
	"bytes"
	"encoding/json"
	"errors"
)

// maxExponentDigits is how many digits a negative exponent may have. Decoding the
// resource quantity "1e-9999999" takes the Kubernetes libraries ten seconds, and
// each digit ten times as long; five take a millisecond.
const maxExponentDigits = 5

// decodeObjects is json.Unmarshal for what may hold resource quantities.
func decodeObjects(body []byte, into any) error {
	for at := 0; ; at++ {
		i := bytes.IndexByte(body[at:], '-')
		if i < 0 {
			return json.Unmarshal(body, into)
		}
		at += i
		digits := 0
		for at+1+digits < len(body) && '0' <= body[at+1+digits] && body[at+1+digits] <= '9' {
			digits++
		}
		if digits > maxExponentDigits && endsNumber(body[at+1+digits:]) && beginsNumber(body[:at]) {
			return errors.New("a resource quantity has a negative exponent of more than 5 digits")
		}
	}
}

// endsNumber says whether a string ends here.
func endsNumber(rest []byte) bool { return len(rest) > 0 && rest[0] == '"' }

// beginsNumber says whether a string begins shortly before the end of text, and
// holds nothing but a number and an e.
func beginsNumber(text []byte) bool {
	at := len(text) - 1
	if at < 0 || text[at]|0x20 != 'e' {
		return false
	}
	for at--; at >= 0 && ('0' <= text[at] && text[at] <= '9' || text[at] == '.' || text[at] == '+' || text[at] == '-'); at-- {
	}
	return at >= 0 && text[at] == '"'
}
