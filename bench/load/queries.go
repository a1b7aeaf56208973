package load

import (
	"encoding/binary"
	"fmt"
	"os"
)

// batch is the highest number of queries sent or received with one system call.
const batch = 64

// WriteQueries writes encoded queries, each after its length, as TCP does.
func WriteQueries(file string, queries [][]byte) error {
	var b []byte
	for _, q := range queries {
		b = binary.BigEndian.AppendUint16(b, uint16(len(q)))
		b = append(b, q...)
	}
	return os.WriteFile(file, b, 0o600)
}

// readQueries reads a file written by WriteQueries. It returns more queries than are
// sent at once, because the ID is written into the query itself.
func readQueries(file string) (queries [][]byte, err error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for len(b) > 0 {
		q, rest, ok := cutFrame(b)
		if !ok || len(q) < minQuery {
			return nil, fmt.Errorf("%s: a query is cut off", file)
		}
		queries, b = append(queries, q), rest
	}
	if len(queries) <= batch {
		return nil, fmt.Errorf("%s: %d queries are too few", file, len(queries))
	}
	return queries, nil
}

// cutFrame returns the first message of a stream (RFC 1035, section 4.2.2), if it is
// complete.
func cutFrame(b []byte) (message, rest []byte, ok bool) {
	const lengthLen = 2
	if len(b) < lengthLen {
		return nil, b, false
	}
	end := lengthLen + int(binary.BigEndian.Uint16(b))
	if len(b) < end {
		return nil, b, false
	}
	return b[lengthLen:end], b[end:], true
}
