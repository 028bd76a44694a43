// Command mutants changes the code in one place at a time, and reports the changes that no test notices: see README.md.
package main
