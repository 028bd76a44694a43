package content

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// columns are the names of the columns with the keys and the numbers.
type columns struct{ key, value string }

func (c columns) decode(r io.Reader, into *collector) error {
	reader := csv.NewReader(r)
	reader.ReuseRecord = true
	reader.TrimLeadingSpace = true
	header, err := reader.Read()
	if errors.Is(err, io.EOF) {
		return errors.New("the first line must name the columns, but there is none")
	} else if err != nil {
		return err
	}
	header[0] = strings.TrimPrefix(header[0], "\uFEFF")
	for i := range header {
		header[i] = strings.TrimSpace(header[i])
	}
	key, value := slices.Index(header, c.key), slices.Index(header, c.value)
	switch {
	case key < 0:
		return fmt.Errorf("the first line has no column %q", c.key)
	case value < 0:
		return fmt.Errorf("the first line has no column %q", c.value)
	}
	for rows := 0; ; rows++ {
		record, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return checkCollected(rows, into)
		} else if err != nil {
			return err
		}
		n, ok, err := numberIn(record[value])
		if err != nil {
			line, _ := reader.FieldPos(value)
			return fmt.Errorf("line %d: %w", line, err)
		}
		name := strings.TrimSpace(record[key])
		if !ok || name == "" {
			continue
		}
		if err := into.add(strings.Clone(name), n); err != nil {
			return err
		}
	}
}
