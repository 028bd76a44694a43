// Package ui serves a page that shows why pods wait, which units of hardware are free, who holds
// what, and whether Outboard is well. The page is a few static files without a library, and reads
// JSON from the same address.
package ui
