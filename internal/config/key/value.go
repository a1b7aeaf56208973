package key

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Duration is a time.Duration, written like 10s or 1m30s.
type Duration time.Duration

// UnmarshalText parses a duration.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q is not a duration, such as 10s or 1m30s", text)
	}
	*d = Duration(v)
	return nil
}

// MarshalText writes a duration as UnmarshalText reads it.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// Size is a number of octets, written like 65536, 64Ki, 32Mi or 1Gi.
type Size int64

// sizeUnits are the suffixes of a Size, largest first.
var sizeUnits = []struct {
	suffix string
	octets int64
}{{"Gi", 1 << 30}, {"Mi", 1 << 20}, {"Ki", 1 << 10}, {"", 1}}

// UnmarshalText parses a size.
func (z *Size) UnmarshalText(text []byte) error {
	for _, unit := range sizeUnits {
		digits, ok := strings.CutSuffix(string(text), unit.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64/unit.octets {
			break
		}
		*z = Size(n * unit.octets)
		return nil
	}
	return fmt.Errorf("%q is not a size, such as 65536 or 32Mi", text)
}

// MarshalText writes a size as UnmarshalText reads it.
func (z Size) MarshalText() ([]byte, error) {
	for _, unit := range sizeUnits {
		if z != 0 && int64(z)%unit.octets == 0 {
			return fmt.Appendf(nil, "%d%s", int64(z)/unit.octets, unit.suffix), nil
		}
	}
	return []byte("0"), nil
}
