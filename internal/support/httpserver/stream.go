package httpserver

import (
	"net/http"
	"time"
)

// AliveTime is the longest time that a Stream is to be without a text, so that it shows that the client is gone.
const AliveTime = 15 * time.Second

// writeTime is the longest time that a client may take for a text.
const writeTime = 10 * time.Second

// Stream is a response that goes on for as long as client and server like. Clients that do not read end it.
type Stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// NewStream returns the Stream of a response, whose header is not sent yet, and which is not to be kept.
func NewStream(w http.ResponseWriter, contentType string) *Stream {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	return &Stream{w, http.NewResponseController(w)}
}

// Write writes a text. It returns an error if the client takes too long for it, or is gone.
func (s *Stream) Write(text []byte) (int, error) {
	if err := s.control.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
		return 0, err
	}
	return s.w.Write(text)
}

// Flush sends what is written, and lets the response take until the next text.
func (s *Stream) Flush() error {
	if err := s.control.Flush(); err != nil {
		return err
	}
	return s.control.SetWriteDeadline(time.Now().Add(AliveTime + writeTime))
}
