package search

// ForgetViews makes the next search meet Views in an order of its own, as in another process.
func ForgetViews() {
	views.Lock()
	defer views.Unlock()
	views.byKey, views.numbers, views.fits = nil, nil, nil
}
