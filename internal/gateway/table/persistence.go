package table

import "crypto/sha256"

// PersistenceKey returns the key of a rule's sessions. All gateways must make the same one, and rules that are to have
// sessions of their own different ones; so parts are the UID of the object, which clients don't know, its name and the
// number of the rule.
func PersistenceKey(parts ...string) (key [16]byte) {
	h := sha256.New()
	for _, part := range parts {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	copy(key[:], h.Sum(nil))
	return key
}
