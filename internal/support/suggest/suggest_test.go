package suggest

import "testing"

func TestDistance(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"web", "web", 0}, {"web", "wbe", 1}, {"web", "we", 1}, {"web", "webs", 1}, {"web", "wab", 1},
		{"orders", "oders", 1}, {"orders", "rodesr", 2}, {"a", "abc", 2}, {"a", "abcd", 3}, {"orders", "billing", 3}, {"abcdef", "ghijkl", 3},
	} {
		if got, back := distance(test.a, test.b), distance(test.b, test.a); got != test.want || back != test.want {
			t.Errorf("distance(%q, %q) = %d, and %d the other way, want %d", test.a, test.b, got, back, test.want)
		}
	}
}

func TestClosest(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		word string
		list []string
		want string
	}{
		{"wbe", []string{"api", "web"}, "web"},
		{"web", []string{"web"}, ""},
		{"db", []string{"ab", "a"}, ""}, // too short for a suggestion
		{"orders", []string{"order-1", "order"}, "order"},
		{"orders", nil, ""},
	} {
		if got := Closest(test.word, test.list); got != test.want {
			t.Errorf("Closest(%q, %q) = %q, want %q", test.word, test.list, got, test.want)
		}
	}
}
