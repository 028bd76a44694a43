package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"unicode/utf8"
)

const (
	// maxDepth is the nesting at which encoding/json gives up.
	maxDepth = 10_000
	// maxQuote is how many bytes of a request an error repeats.
	maxQuote = 32
	// maxKey is the length of the longest known key, if every letter of it is written as \u0000.
	maxKey = 6 * len("resourceVersion")
)

// span is a range of the body: body[from:to].
type span struct{ from, to int32 }

// meta holds the positions of the identity of a Pod or Node in the body. Strings are ranges between
// the quotes; an empty range is an absent or empty string.
type meta struct {
	name, namespace, uid, resourceVersion span
}

// scanner scans a JSON text. Each method reads from at on and sets at to the end of what it read.
// The first error is kept: it ends every loop, and later calls have no effect on the result.
type scanner struct {
	body []byte
	at   int
	err  error
	path string // position of err, such as NodeNames[3]
}

// start moves to the object of the request.
func (s *scanner) start() error {
	s.space()
	switch {
	case len(s.body) > math.MaxInt32:
		return fmt.Errorf("request body of %d bytes: at most 2 GiB can be read", len(s.body))
	case s.at == len(s.body):
		return errors.New("request body is empty")
	case s.peek() != '{':
		return fmt.Errorf("request body is not a JSON object: it begins with %s", excerpt(s.body[s.at:]))
	}
	return nil
}

// finish returns the error, or that something follows the object.
func (s *scanner) finish() error {
	switch {
	case s.err != nil && s.path != "":
		return fmt.Errorf("%s: %w", s.path, s.err)
	case s.err != nil:
		return s.err
	}
	s.space()
	if s.at < len(s.body) {
		return fmt.Errorf("%d bytes follow the JSON object of the request, beginning with %s", len(s.body)-s.at, excerpt(s.body[s.at:]))
	}
	return nil
}

// fail records that something else was expected at s.at.
func (s *scanner) fail(want string) {
	switch {
	case s.err != nil:
	case s.at >= len(s.body):
		s.err = fmt.Errorf("want %s, but the request ends at byte %d", want, len(s.body))
	default:
		s.err = fmt.Errorf("want %s, have %s at byte %d", want, kind(s.body[s.at]), s.at)
	}
}

// kind returns the kind of value that starts with c. Errors contain nothing else of the inside of a
// request, which may hold secrets.
func kind(c byte) string {
	switch {
	case c == '"':
		return "a string"
	case c == '{':
		return "an object"
	case c == '[':
		return "an array"
	case c == 't', c == 'f':
		return "a boolean"
	case c == 'n':
		return "null"
	case c == '-', '0' <= c && c <= '9':
		return "a number"
	case c < ' ', c >= utf8.RuneSelf:
		return fmt.Sprintf("0x%02x", c)
	}
	return "'" + string(rune(c)) + "'"
}

// peek returns the next byte, or 0 at the end, which no JSON text contains.
func (s *scanner) peek() byte {
	if s.at < len(s.body) {
		return s.body[s.at]
	}
	return 0
}

func (s *scanner) space() {
	for s.at < len(s.body) {
		switch s.body[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

// within prepends the position of what was just read to the position of an error, if there is one.
func (s *scanner) within(place string) {
	if s.err != nil {
		s.path = place + s.path
	}
}

// begin skips the opening bracket, which must be next, and reports whether a first element or
// member follows.
func (s *scanner) begin(opening, closing byte) (more bool) {
	if s.err != nil {
		return false
	}
	if s.peek() != opening {
		if opening == '{' {
			s.fail("an object")
		} else {
			s.fail("an array")
		}
		return false
	}
	s.at++
	s.space()
	if s.peek() == closing {
		s.at++
		return false
	}
	return true
}

// next skips the separator of two elements or members and reports whether another one follows. It
// is small so that it is inlined: usually the separator is one comma.
func (s *scanner) next(closing byte) (more bool) {
	if at := s.at + 1; at < len(s.body) && s.body[at] > ' ' && s.body[at-1] == ',' && s.err == nil {
		s.at = at
		return true
	}
	return s.separator(closing)
}

func (s *scanner) separator(closing byte) (more bool) {
	s.space()
	switch c := s.peek(); {
	case s.err != nil:
	case c == ',':
		s.at++
		s.space()
		return true
	case c == closing:
		s.at++
	default:
		s.fail("',' or '" + string(rune(closing)) + "'")
	}
	return false
}

// key reads a member's key and the colon, up to the value.
func (s *scanner) key() []byte {
	raw := s.text("a key")
	key := s.body[raw.from:raw.to]
	if !s.colon() {
		return nil
	}
	if len(key) <= maxKey {
		key = unquote(key)
	}
	return key
}

// colon skips the colon after a key, up to the value.
func (s *scanner) colon() bool {
	s.space()
	if s.peek() != ':' {
		s.fail("':'")
		return false
	}
	s.at++
	s.space()
	return true
}

// is compares a key as encoding/json does: in any letter case.
func is(key, name []byte) bool {
	return bytes.Equal(key, name) || bytes.EqualFold(key, name)
}

func (s *scanner) null() bool {
	if s.peek() != 'n' || !bytes.HasPrefix(s.body[s.at:], []byte("null")) {
		return false
	}
	s.at += len("null")
	return true
}

// value reports whether a value follows that is not null. It fails if the request had one before:
// encoding/json would merge the two.
func (s *scanner) value(before bool, what string) bool {
	if s.err != nil || s.null() {
		return false
	}
	if before {
		s.err = fmt.Errorf("request has more than one %s: the others must be null or absent", what)
	}
	return !before
}

// Masks of eight bytes.
const (
	ones  = 0x0101010101010101
	highs = 0x80 * ones
)

// plainEnd returns the position of the first byte from i on that is not a usual byte of names and
// keys: the closing quote, or a byte that slowText handles. It tests eight bytes at a time, because
// names are many and short. Subtracting sets the high bit of a byte that was smaller, and may set
// those of later bytes; the first one is always correct.
func plainEnd(b []byte, i int) int {
	for ; i+8 <= len(b); i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		odd := (x | (x - ('"'+1)*ones) | ((x ^ '\\'*ones) - ones)) & highs
		if odd != 0 {
			return i + bits.TrailingZeros64(odd)/8
		}
	}
	for i < len(b) && b[i] > '"' && b[i] != '\\' && b[i] < utf8.RuneSelf {
		i++
	}
	return i
}

// text reads a string and checks it completely, including UTF-8.
func (s *scanner) text(want string) span {
	if s.peek() != '"' {
		s.fail(want)
		return span{}
	}
	from := s.at + 1
	to := plainEnd(s.body, from)
	if to < len(s.body) && s.body[to] == '"' {
		s.at = to + 1
		return span{int32(from), int32(to)}
	}
	return s.slowText()
}

// slowText implements text for strings with spaces, escapes, bytes beyond ASCII, or errors.
func (s *scanner) slowText() span {
	from := s.at
	if !s.skipString() {
		return span{}
	}
	raw := s.body[from:s.at]
	if s.err == nil && (!utf8.Valid(raw) || !json.Valid(raw)) {
		s.err = fmt.Errorf("control character, bad escape or invalid UTF-8 in the string at byte %d", from)
	}
	return span{int32(from + 1), int32(s.at - 1)}
}

// unquote returns the value of a string that text has checked.
func unquote(raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	var text string
	quoted := append(append([]byte{'"'}, raw...), '"')
	if err := json.Unmarshal(quoted, &text); err != nil {
		return nil // unreachable: text has checked it
	}
	return []byte(text)
}

// skipString skips a string without checking its contents.
func (s *scanner) skipString() bool {
	end := stringEnd(s.body, s.at+1)
	if end < 0 {
		s.at = len(s.body)
		s.fail("the end of a string")
		return false
	}
	s.at = end
	return true
}

// stringEnd returns the position after the quote that ends the string whose inside begins at from,
// or -1. A quote after an odd number of backslashes is part of the string. It counts each run of
// backslashes once, so that the time is linear for any string.
func stringEnd(b []byte, from int) int {
	for i := from; ; {
		quote := bytes.IndexByte(b[i:], '"')
		if quote < 0 {
			return -1
		}
		i += quote + 1
		slashes := i - 2
		for slashes >= from && b[slashes] == '\\' {
			slashes--
		}
		if (i-slashes)&1 == 0 {
			return i
		}
	}
}

// nesting is the change of the depth by a byte outside strings.
var nesting = [256]int8{'{': 1, '[': 1, '}': -1, ']': -1}

// skip skips a value within depth open brackets. It requires balanced brackets and terminated
// strings in objects and arrays, and checks nothing else.
func (s *scanner) skip(depth int) {
	switch s.peek() {
	case '"':
		s.skipString()
	case '{', '[':
		s.skipNested(depth)
	default:
		s.skipScalar()
	}
}

// skipNested takes most of the time in Nodes mode. Within a string, the runtime's vectorized
// IndexByte finds the next quote; between strings there are two or three bytes, which a table
// converts to changes of the depth.
func (s *scanner) skipNested(depth int) {
	b, i := s.body, s.at
	open, limit := 0, uint(maxDepth-depth)
	for i < len(b) {
		c := b[i]
		i++
		if c == '"' {
			quote := bytes.IndexByte(b[i:], '"')
			if quote < 0 {
				break
			}
			start := i
			i += quote + 1
			if b[i-2] == '\\' {
				if i = stringEnd(b, start); i < 0 {
					break
				}
			}
			continue
		}
		open += int(nesting[c])
		if uint(open-1) >= limit { // no bracket is open any more, or too many are
			s.at = i
			if open > 0 && s.err == nil {
				s.err = fmt.Errorf("nested deeper than %d levels at byte %d", maxDepth, i-1)
			}
			return
		}
	}
	s.at = len(b)
	s.fail("the end of a string, object or array")
}

func (s *scanner) skipScalar() {
	from := s.at
	end := bytes.IndexAny(s.body[from:], ",]} \t\r\n")
	if end < 0 {
		end = len(s.body) - from
	}
	if end == 0 {
		s.fail("a value")
	}
	s.at = from + end
}

// skipChecked is like skip, and checks the value completely.
func (s *scanner) skipChecked(depth int) {
	from := s.at
	s.skip(depth)
	if s.err == nil && !json.Valid(s.body[from:s.at]) {
		s.err = fmt.Errorf("malformed value at byte %d", from)
	}
}

var (
	keyMetadata        = []byte("metadata")
	keyName            = []byte("name")
	keyNamespace       = []byte("namespace")
	keyUID             = []byte("uid")
	keyResourceVersion = []byte("resourceVersion")
)

// object reads a Pod or Node within depth open brackets: its own members and those of its metadata,
// skipping all other values. Duplicate keys merge as in encoding/json: the last string counts, null
// changes nothing.
func (s *scanner) object(depth int, m *meta) span {
	from := s.at
	for more := s.begin('{', '}'); more; more = s.next('}') {
		switch key := s.key(); {
		case !is(key, keyMetadata):
			s.skip(depth + 1)
		case !s.null():
			s.metadata(depth+1, m)
			s.within(".metadata")
		}
	}
	return span{int32(from), int32(s.at)}
}

// metadata reads the four strings of meta.
func (s *scanner) metadata(depth int, m *meta) {
	for more := s.begin('{', '}'); more; more = s.next('}') {
		var field *span
		key := s.key()
		switch {
		case is(key, keyName):
			field = &m.name
		case is(key, keyNamespace):
			field = &m.namespace
		case is(key, keyUID):
			field = &m.uid
		case is(key, keyResourceVersion):
			field = &m.resourceVersion
		default:
			s.skip(depth + 1)
			continue
		}
		if s.null() {
			continue
		}
		if *field = s.text("a string"); s.err != nil {
			s.within("." + string(key))
		}
	}
}

// checkMeta checks the lengths of the identity of a Pod, because the record of a decision may keep
// it.
func (s *scanner) checkMeta(m *meta) {
	s.checkLength("name", m.name, MaxName)
	s.checkLength("namespace", m.namespace, MaxNamespace)
	s.checkLength("uid", m.uid, MaxUID)
	s.checkLength("resourceVersion", m.resourceVersion, MaxResourceVersion)
}

func (s *scanner) checkLength(field string, text span, limit int) {
	if s.err == nil && int(text.to-text.from) > limit && s.length(text) > limit {
		s.err = tooLong("the value", s.length(text), limit)
		s.within(".metadata." + field)
	}
}

// length returns the length of the value of a string.
func (s *scanner) length(text span) int { return len(unquote(s.body[text.from:text.to])) }

func tooLong(what string, length, limit int) error {
	return fmt.Errorf("%s has %d bytes, the limit is %d", what, length, limit)
}

// excerpt quotes the start of b for an error.
func excerpt(b []byte) string {
	if len(b) <= maxQuote {
		return strconv.Quote(string(b))
	}
	return strconv.Quote(string(b[:maxQuote])) + "…"
}
