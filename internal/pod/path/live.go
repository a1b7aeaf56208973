package path

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"portolan.dev/portolan/internal/pod/explain"
)

// Live compares a layer with what packets saw.
type Live struct {
	// Expected is what the model has them see, and Seen what they saw; empty if nothing was sent.
	Expected string `json:"expected,omitempty"`
	Seen     string `json:"seen,omitempty"`
	// Agrees is whether both are the same; nil if that is not known.
	Agrees *bool `json:"agrees,omitempty"`
	// NotCompared is why that is not known.
	NotCompared string `json:"notCompared,omitempty"`
	// Likely are the likely causes of a difference.
	Likely []string `json:"likely,omitempty"`
}

// Differs reports whether the layer was compared, and is not as the model has it.
func (l *Live) Differs() bool { return l != nil && l.Agrees != nil && !*l.Agrees }

// Sent is a packet, a connection or a request that was sent.
type Sent struct {
	// What is it, such as "TCP connection to 10.96.20.1:80".
	What string `json:"what"`
	// Result is what came back.
	Result       string  `json:"result"`
	Milliseconds float64 `json:"milliseconds"`
}

// Response is the head of a response.
type Response struct {
	Status   int      `json:"status"`
	Location string   `json:"location,omitempty"`
	Header   []string `json:"headers,omitempty"` // "NAME: VALUE", in order
	// From is the server that it names, "Pod NAMESPACE/NAME"; empty if it names none that is known.
	From string `json:"from,omitempty"`
}

// Reality is what was sent to compare an Explanation with.
type Reality struct {
	// From is where it was sent from, in words.
	From string `json:"from"`
	Sent []Sent `json:"sent"`
	// Response is that to the request; nil if there is none.
	Response *Response `json:"response,omitempty"`
	// Missing is why some or all layers could not be compared, and Run what to do instead; empty if all that can be was.
	Missing string `json:"missing,omitempty"`
	Run     string `json:"run,omitempty"`
	// Differs is the first layer that is not as the model has it; empty if none is.
	Differs Layer `json:"differs,omitempty"`
}

// Differs returns the first layer that packets saw otherwise than the model has it; empty if there is none, or if
// nothing was sent.
func (e *Explanation) Differs() Layer {
	if e.Live == nil {
		return ""
	}
	return e.Live.Differs
}

// writeDifferences prints the layers that are not as the model has them, before all else.
func (e *Explanation) writeDifferences(b *strings.Builder) {
	for i := range e.Steps {
		s := &e.Steps[i]
		if !s.Live.Differs() {
			continue
		}
		fmt.Fprintf(b, "%s differs: the model says %s, and the packets saw: %s\n", s.Layer, s.Live.Expected, s.Live.Seen)
		for _, cause := range s.Live.Likely {
			fmt.Fprintf(b, "  likely: %s\n", cause)
		}
	}
}

// writeLive prints what became of each layer with packets, and what was sent.
func (e *Explanation) writeLive(b *strings.Builder) {
	if e.Live == nil {
		return
	}
	if len(e.Live.Sent) == 0 {
		b.WriteString("\nnothing was sent\n")
	} else {
		fmt.Fprintf(b, "\nsent from %s\n", e.Live.From)
	}
	for _, s := range e.Live.Sent {
		fmt.Fprintf(b, "  %s: %s (%.1f ms)\n", s.What, s.Result, s.Milliseconds)
	}
	for i := range e.Steps {
		s := &e.Steps[i]
		switch l := s.Live; {
		case l == nil:
		case l.NotCompared != "":
			fmt.Fprintf(b, "  %-8s not compared: %s\n", s.Layer, l.NotCompared)
		case l.Differs():
			fmt.Fprintf(b, "  %-8s differs: %s, expected %s\n", s.Layer, l.Seen, l.Expected)
		default:
			fmt.Fprintf(b, "  %-8s agrees: %s\n", s.Layer, l.Seen)
		}
	}
	if e.Live.Missing != "" {
		fmt.Fprintf(b, "  %s\n", e.Live.Missing)
	}
	if e.Live.Run != "" {
		fmt.Fprintf(b, "    run: %s\n", e.Live.Run)
	}
}

// WriteLive prints what packets saw; nothing if none were to be sent.
func (e *Explanation) WriteLive(w io.Writer) error {
	var b strings.Builder
	e.writeLive(&b)
	return explain.WritePlain(w, b.String())
}

// Compared returns the layers that packets were compared with.
func (e *Explanation) Compared() (all []Layer) {
	for i := range e.Steps {
		if l := e.Steps[i].Live; l != nil && l.Agrees != nil && !slices.Contains(all, e.Steps[i].Layer) {
			all = append(all, e.Steps[i].Layer)
		}
	}
	return all
}
