package cni

import (
	"encoding/json"
	"io"
	"testing"
)

// SetBoot makes the record at path one of another boot.
func SetBoot(t *testing.T, path, boot string) {
	t.Helper()
	var stored record
	err := recordFormat.Read(path, func(contents []byte) error { return json.Unmarshal(contents, &stored) })
	if err != nil {
		t.Fatal(err)
	}
	stored.Boot = boot
	text, err := json.Marshal(stored)
	if err != nil {
		t.Fatal(err)
	}
	err = recordFormat.Write(path, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
