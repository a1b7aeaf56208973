package certfile_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"portolan.dev/portolan/internal/support/certfile"
	"portolan.dev/portolan/internal/support/testcert"
)

// TestGet: a certificate is read again when its files change. If they have none, the one before stays.
func TestGet(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name string, age time.Duration) *testcert.Certificate {
		t.Helper()
		made, err := testcert.New(name, time.Now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		certificate, key, err := made.Write(dir)
		at := time.Now().Add(-age)
		if err := errors.Join(err, os.Chtimes(certificate, at, at), os.Chtimes(key, at, at)); err != nil {
			t.Fatal(err)
		}
		return made
	}
	log := slog.New(slog.DiscardHandler)
	if c, err := certfile.Open(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), log); err == nil {
		t.Errorf("Open of no files returned %v", c)
	}
	want := write("a.test", time.Hour)
	c, err := certfile.Open(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), log)
	if err != nil {
		t.Fatal(err)
	}
	has := func(want *testcert.Certificate) bool {
		return bytes.Equal(c.Get().Certificate[0], want.TLS.Certificate[0])
	}
	if !has(want) {
		t.Error("Get did not return the certificate in the files")
	}
	want = write("b.test", time.Minute)
	for end := time.Now().Add(time.Minute); !has(want); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("Get did not return the new certificate")
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "tls.key"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if !has(want) {
			t.Fatal("Get returned another certificate than the last one")
		}
	}
}
