package engine

import (
	"fmt"
	"runtime/debug"
)

// PolicyError is the error or the panic of one policy.
type PolicyError struct {
	Policy string
	Err    error
	// Stack is the stack of a panic, for logs; nil otherwise.
	Stack []byte
}

func (e *PolicyError) Error() string { return fmt.Sprintf("policy %s: %v", e.Policy, e.Err) }

// Unwrap returns the policy's own error.
func (e *PolicyError) Unwrap() error { return e.Err }

// guard calls code of a policy. Its error or panic becomes a *PolicyError.
func guard(name string, code func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &PolicyError{Policy: name, Err: fmt.Errorf("panic: %v", p), Stack: debug.Stack()}
		}
	}()
	if err := code(); err != nil {
		return &PolicyError{Policy: name, Err: err}
	}
	return nil
}
