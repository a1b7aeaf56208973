// Package htpasswd reads files of users and hashes of their passwords, as Apache's htpasswd writes them, and compares
// passwords with hashes (Apache HTTP Server, "Password Formats").
//
// It knows bcrypt ($2a$, $2b$, $2y$), MD5-crypt ($apr1$, which htpasswd writes unless it is told otherwise, and
// $1$), and SHA-1 ({SHA}, {SSHA}). It does not know crypt(3) with DES, SHA-256 ($5$) or SHA-512 ($6$), nor passwords
// in the clear.
package htpasswd

import (
	"bytes"
	"crypto/md5"  //nolint:gosec // the format is that of others
	"crypto/sha1" //nolint:gosec // as above
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/crypto/bcrypt"
)

const (
	// MaxPassword is the longest password that is compared, in octets. Longer ones match no hash.
	MaxPassword = 256
	// MaxCost is the highest cost of bcrypt: with 12 a comparison takes about 250 ms of a processor.
	MaxCost = 12
)

// Parse reads lines of NAME:HASH. Empty lines and those that begin with # are skipped. The hashes of users that can log
// in are by name; there is an error for each line that is not used. It has no text of a line without a colon, which may
// be a password or a part of a key.
func Parse(text []byte) (users map[string]string, problems []error) {
	users = make(map[string]string)
	n := 0
	for line := range bytes.Lines(text) {
		n++
		line := strings.TrimSpace(string(line))
		if line == "" || line[0] == '#' {
			continue
		}
		name, hash, colon := strings.Cut(line, ":")
		if !colon {
			problems = append(problems, fmt.Errorf("line %d: no colon after the user", n))
		} else if name == "" {
			problems = append(problems, fmt.Errorf("line %d: no user", n))
		} else if err := Check(hash); err != nil {
			problems = append(problems, fmt.Errorf("line %d: user %q: %w", n, name, err))
		} else if _, twice := users[name]; twice {
			problems = append(problems, fmt.Errorf("line %d: user %q is in a line before", n, name))
		} else {
			users[name] = hash
		}
	}
	return users, problems
}

var (
	errNoHash  = errors.New("no hash of a password")
	errUnknown = errors.New("the hash is neither bcrypt, apr1 (MD5), {SHA} nor {SSHA}")
	errCost    = fmt.Errorf("the cost of bcrypt is higher than %d", MaxCost)
)

// Check returns why a hash is not one that a password can be compared with; nil if it is.
func Check(hash string) error {
	if hash == "" {
		return errNoHash
	}
	if isBcrypt(hash) {
		cost, err := bcrypt.Cost([]byte(hash))
		if err != nil {
			return errUnknown
		}
		if cost > MaxCost {
			return errCost
		}
		return nil
	}
	if magic, salt, sum := cutMD5(hash); magic != "" && salt != "" && len(sum) == md5Length {
		return nil
	}
	if want, _ := cutSHA(hash); want != nil {
		return nil
	}
	return errUnknown
}

// Matches reports whether a password is that of a hash.
func Matches(hash, password string) bool {
	if len(password) > MaxPassword {
		return false
	}
	if isBcrypt(hash) {
		return Check(hash) == nil && bcrypt.CompareHashAndPassword([]byte(hash), []byte(password)) == nil
	}
	if magic, salt, sum := cutMD5(hash); magic != "" {
		return subtle.ConstantTimeCompare([]byte(md5Crypt(magic, salt, password)), []byte(sum)) == 1
	}
	if want, salt := cutSHA(hash); want != nil {
		got := sha1.Sum(append([]byte(password), salt...)) //nolint:gosec // the format is that of others
		return subtle.ConstantTimeCompare(got[:], want) == 1
	}
	return false
}

func isBcrypt(hash string) bool {
	return strings.HasPrefix(hash, "$2a$") || strings.HasPrefix(hash, "$2b$") || strings.HasPrefix(hash, "$2y$")
}

// cutSHA returns the sum and the salt of {SHA} and {SSHA}; a nil sum for others.
func cutSHA(hash string) (sum, salt []byte) {
	text, salted := strings.CutPrefix(hash, "{SSHA}")
	if !salted {
		var ok bool
		if text, ok = strings.CutPrefix(hash, "{SHA}"); !ok {
			return nil, nil
		}
	}
	all, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(all) < sha1.Size || len(all) > sha1.Size && !salted {
		return nil, nil
	}
	return all[:sha1.Size], all[sha1.Size:]
}

// md5Length is how long the sum of an MD5-crypt hash is.
const md5Length = 22

// cutMD5 returns the parts of an MD5-crypt hash; an empty magic for others. A salt has up to 8 octets.
func cutMD5(hash string) (magic, salt, sum string) {
	for _, magic := range []string{"$apr1$", "$1$"} {
		if rest, ok := strings.CutPrefix(hash, magic); ok {
			salt, sum, _ = strings.Cut(rest, "$")
			return magic, salt[:min(len(salt), 8)], sum
		}
	}
	return "", "", ""
}

// md5Crypt returns the sum of a password (Poul-Henning Kamp's crypt for FreeBSD; Apache's differs in the magic).
func md5Crypt(magic, salt, password string) string {
	p, s := []byte(password), []byte(salt)
	inner := md5.Sum(bytes.Join([][]byte{p, s, p}, nil)) //nolint:gosec // the format is that of others
	first := append(append(bytes.Clone(p), magic...), s...)
	for left := len(p); left > 0; left -= md5.Size {
		first = append(first, inner[:min(left, md5.Size)]...)
	}
	for bits := len(p); bits > 0; bits >>= 1 {
		if bits&1 != 0 {
			first = append(first, 0)
		} else {
			first = append(first, p[0])
		}
	}
	sum := md5.Sum(first) //nolint:gosec // the format is that of others
	const rounds = 1000
	var round []byte
	for i := range rounds {
		round = round[:0]
		odd := i%2 != 0
		if odd {
			round = append(round, p...)
		} else {
			round = append(round, sum[:]...)
		}
		if i%3 != 0 {
			round = append(round, s...)
		}
		if i%7 != 0 {
			round = append(round, p...)
		}
		if odd {
			round = append(round, sum[:]...)
		} else {
			round = append(round, p...)
		}
		sum = md5.Sum(round) //nolint:gosec // the format is that of others
	}
	return encodeMD5(&sum)
}

// encodeMD5 returns the text of a sum: its octets in another order, six bits a character.
func encodeMD5(sum *[md5.Size]byte) string {
	const alphabet = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	made := make([]byte, 0, md5Length)
	digits := func(v uint32, n int) {
		for range n {
			made = append(made, alphabet[v&0x3f])
			v >>= 6
		}
	}
	for _, at := range [][3]int{{0, 6, 12}, {1, 7, 13}, {2, 8, 14}, {3, 9, 15}, {4, 10, 5}} {
		digits(uint32(sum[at[0]])<<16|uint32(sum[at[1]])<<8|uint32(sum[at[2]]), 4)
	}
	digits(uint32(sum[11]), 2)
	return string(made)
}
