package lint

import (
	"fmt"
	"strings"
)

// mean is a question for a word that was perhaps meant, or nothing.
func mean(word string) string {
	if word == "" {
		return ""
	}
	return fmt.Sprintf(" (is %s meant?)", word)
}

// mostListed is how many things a message lists.
const mostListed = 3

// some lists a few of the words.
func some(words []string) string {
	text := strings.Join(words[:min(len(words), mostListed)], ", ")
	if more := len(words) - mostListed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// counted is a number with its noun: "1 endpoint", "2 endpoints".
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
