package signal

import "errors"

var (
	// ErrTooMany says that a reading has more values than it may have.
	ErrTooMany = errors.New("more values than maxValues allows")
	// ErrTooLong says that a document is longer than it may be.
	ErrTooLong = errors.New("the document is too long")
)
