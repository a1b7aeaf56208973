// Package suggest finds the word that a misspelled one was probably meant to be.
//
// No library of the module graph has it: cobra's suggestions are for its commands only,
// and count a swap of two letters as two errors.
package suggest

// maxDistance is the maximum distance of a suggestion.
const maxDistance = 2

// Closest returns the candidate with the smallest distance from word, the first one if
// several have it. It returns "" if no other word is within maxDistance and a third of the
// length of the longer word.
func Closest(word string, candidates []string) string {
	best, least := "", maxDistance+1
	for _, candidate := range candidates {
		if d := distance(word, candidate); d > 0 && d < least && d*3 <= max(len(word), len(candidate)) {
			best, least = candidate, d
		}
	}
	return best
}

// distance returns the number of bytes to insert, delete, replace or swap with the next
// one to turn a into b (optimal string alignment distance), or maxDistance + 1 if it is
// larger.
func distance(a, b string) int {
	if len(a)-len(b) > maxDistance || len(b)-len(a) > maxDistance {
		return maxDistance + 1
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
	return min(last[len(b)], maxDistance+1)
}
