package lint

import (
	"fmt"
	"strings"
)

// didYouMean returns a suggestion in parentheses, or "" for no word.
func didYouMean(word string) string {
	if word == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s?)", word)
}

// mostListed is the maximum number of items that a message lists.
const mostListed = 3

// firstFew lists the first words, and how many more there are.
func firstFew(words []string) string {
	text := strings.Join(words[:min(len(words), mostListed)], ", ")
	if more := len(words) - mostListed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// at returns the index of an element in the path of a field.
func at(i int) string { return fmt.Sprintf("[%d]", i) }

// counted returns a number with its noun: "1 endpoint", "2 endpoints".
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
