package tlsfront

import "crypto/tls"

// Suites returns the cipher suites of TLS 1.2 that are served unless others are set: those with forward secrecy and
// authenticated encryption (RFC 9325, section 4.2). Those of TLS 1.3 are all served, and cannot be set (crypto/tls).
func Suites() []uint16 {
	return []uint16{
		tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
		tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
	}
}
