package ledger_test

import (
	"encoding/json"
	"testing"

	"outboard.dev/outboard/internal/ledger"
)

// FuzzObject decodes any text as a ledger. What was decoded and is written back stays the same from
// then on, with its unknown fields.
func FuzzObject(f *testing.F) {
	f.Add(newer)
	f.Add(`{"spec":{"resource":"gpu","units":[{"name":"0","capacity":1,"claims":[{"pod":"p","amount":1}]}],"pods":[{"uid":"p"}]}}`)
	f.Add(`{"spec":{"units":[{"name":"0","x":1},{"name":"0","x":2}]},"summary":{"used":-1},"y":[[1e400]]}`)
	f.Fuzz(func(t *testing.T, text string) {
		var read, again ledger.Object
		if json.Unmarshal([]byte(text), &read) != nil {
			return
		}
		written, err := json.Marshal(read)
		if err != nil {
			t.Fatalf("a ledger that was decoded cannot be encoded: %v", err)
		}
		object(t, written, &again)
		rewritten, err := json.Marshal(again)
		if err != nil || string(rewritten) != string(written) {
			t.Errorf("written back as\n%s\nand then as\n%s\n%v", written, rewritten, err)
		}
		copied, err := json.Marshal(read.DeepCopyObject())
		if err != nil || string(copied) != string(written) {
			t.Errorf("the copy is\n%s, want\n%s\n%v", copied, written, err)
		}
	})
}
