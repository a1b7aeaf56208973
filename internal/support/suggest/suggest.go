// Package suggest finds the word that was perhaps meant by one with a slip.
package suggest

// mostTypos is how many letters may differ for a word to be taken for another.
const mostTypos = 2

// Word is the word of a list that is most like the given one, the first of
// several; "" if none is like it.
func Closest(word string, list []string) string {
	best, least := "", mostTypos+1
	for _, other := range list {
		if d := distance(word, other); d > 0 && d < least && d*3 <= max(len(word), len(other)) {
			best, least = other, d
		}
	}
	return best
}

// distance is how many letters have to be added, left out, replaced or swapped
// with the next to make one word of the other (optimal string alignment);
// mostTypos + 1 when it is more.
func distance(a, b string) int {
	if len(a)-len(b) > mostTypos || len(b)-len(a) > mostTypos {
		return mostTypos + 1
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			same := last[j]
			if a[i] != b[j] {
				same++
			}
			row[j+1] = min(same, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return min(last[len(b)], mostTypos+1)
}
